"""Arithmetic of the benchmark tables; a failed command has no figures."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import msgspec
import pytest

from bench import contests, tables
from bench.contestants import Contestant
from bench.contests import contest
from bench.corpora import Corpus
from bench.figures import Pair, Result, Row, Span, WorkResult, cpu_ratio, cpu_s, growth, peak_mib
from bench.processes import Measurement, run


def measurement(cpu_s: float, *, exit_status: int | None = 0, peak_mib: float = 10.0) -> Measurement:
    """Return a run whose elapsed time is its CPU time."""
    return Measurement(cpu_s, cpu_s, peak_mib, exit_status, lines=3, output="out of memory | `here`")


def row(name: str, *seconds: float, exit_status: int | None = 0) -> Row:
    """Return a table row with one run for each of the given durations."""
    return Row(name, tuple(measurement(value, exit_status=exit_status) for value in seconds))


def corpus(*rows: Row, name: str = "small-100") -> WorkResult:
    """Return the result on a corpus of ten models."""
    return WorkResult(name, "ten models", 10, 1_000_000, "bound", rows)


def test_ratios_are_of_one_repetition_each() -> None:
    """The ratio is the median of 2/1, 12/4 and 4/4, not the ratio of the medians."""
    assert Span(2.0, 1.0, 3.0) == cpu_ratio(row("own", 2, 12, 4), row("bound", 1, 4, 4))


def test_the_peak_is_of_all_repetitions() -> None:
    """The largest peak of all repetitions counts."""
    runs = (measurement(1, peak_mib=10), measurement(1, peak_mib=30), measurement(1, peak_mib=20))

    assert 30 == peak_mib(Row("own", runs))


def test_growth_from_ten_to_a_hundred() -> None:
    """Ten times the CPU time for 90 more models is 0.1 s per model."""
    grown = growth(corpus(row("own", 1)), corpus(row("own", 10)), 90)

    assert {"own": pytest.approx(100)} == grown


@pytest.mark.parametrize("exit_status", [1, -9, None])
def test_failed_run_has_no_figures(exit_status: int | None) -> None:
    """A crash, an error or a timeout leaves the time, ratio and growth empty."""
    failed, bound = Row("fast", (measurement(0.1), measurement(0.1, exit_status=exit_status))), row("bound", 1, 1)

    assert cpu_s(failed) is None
    assert cpu_ratio(failed, bound) is cpu_ratio(bound, failed) is None
    assert {} == growth(corpus(failed), corpus(row("fast", 1)), 90)


def test_failed_run_shows_exit_status_and_output() -> None:
    """The row contains the exit status and the output, on one line that does not break the table."""
    rows = (row("crashed", 0.1, exit_status=-11), row("slow", 60, exit_status=None), row("bound", 1))

    shown = tables.markdown(Result({"Python": "3"}, (corpus(*rows),)))

    assert "| crashed | **failed**: exit -11, 3 of 10 models done: `out of memory / 'here'` |  |  | 10 |" in shown
    assert "| slow | **failed**: stopped at the limit of 60 s, 3 of 10 models done |  |  | 10 |" in shown


def test_a_pair_that_failed_does_not_meet_its_target() -> None:
    """A pair in which one command failed does not meet its target, even if the failure was fast."""
    pair = Pair("start", row("own", 1, exit_status=2), row("bound", 1), 2.0)

    assert "| start / `bound` | wall time at most 2 x | **failed** |  |" in tables.markdown(Result({}, pairs=(pair,)))


def test_hashing_time_is_subtracted() -> None:
    """Loading (20 s) is compared with checking without hashing (5 s minus 4 s)."""
    rows = row("onnxgate check --static", 5), row("hashlib.sha256", 4), row("onnx.load, in a loop", 20)

    shown = tables.markdown(Result({}, (corpus(*rows, name="huge"),)))

    assert "20.00 s / 1.00 s = 20.0 x" in shown


def test_a_result_survives_its_file() -> None:
    """Tables can be recreated from the JSON."""
    result = Result({"Python": "3"}, (corpus(row("bound", 1)),), pairs=(Pair("a", row("b", 1), row("c", 1), 2.0),))

    assert result == msgspec.json.decode(msgspec.json.encode(result), type=Result)


def test_a_process_with_its_children(tmp_path: Path) -> None:
    """Time and memory of child processes are included."""
    child = "b = bytearray(80_000_000); s = sum(range(3_000_000))"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('a'); print('b')"

    actual = run((sys.executable, "-c", script), tmp_path, {}, 60)

    assert not actual.failed
    assert 2 == actual.lines
    own_mib = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )  # memory of a forked process before it executes a program
    assert 76 < actual.peak_mib < 400 + 2 * own_mib
    assert 0.02 < actual.cpu_s


def test_a_process_is_ended_with_its_children(tmp_path: Path) -> None:
    """The time limit kills the whole session, so that no process outlives it."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"

    actual = run((sys.executable, "-c", script), tmp_path, {}, 0.5)

    assert actual.exit is None
    assert actual.failed
    assert actual.wall_s < 30


def test_failing_command_is_run_once(tmp_path: Path) -> None:
    """The failing command is run once and the working one twice."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.onnx").write_bytes(b"abc")
    failing = Contestant("failing", (sys.executable, "-c", "raise SystemExit(3)"))
    working = Contestant("working", (sys.executable, "-c", "pass"))

    result = contest(Corpus("one", "one", 1, lambda _: None), tmp_path, (failing, working), 2, 60)

    assert [1, 2] == [len(row.runs) for row in result.rows]
    assert 3 == result.size_bytes
    assert result.rows[0].failure is not None
    assert 3 == result.rows[0].failure.exit


def test_a_slow_peer_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow peer is not repeated, so that the benchmark stays within its time; onnxgate itself is always repeated."""
    monkeypatch.setattr(contests, "_SLOW_S", 0.0)
    command = (sys.executable, "-c", "pass")
    own, peer = Contestant("own", command), Contestant("peer", command, is_peer=True)

    rows = contests.measure("work", (own, peer), tmp_path, 2, 60)

    assert [2, 1] == [len(row.runs) for row in rows]
    assert cpu_ratio(*rows) is not None


def test_an_accepted_exit_status_is_not_a_failure(tmp_path: Path) -> None:
    """A check of models that were not generated may report errors."""
    command = (sys.executable, "-c", "raise SystemExit(1)")

    assert not run(command, tmp_path, {}, 60, accepted=(0, 1, 3)).failed
    assert run(command, tmp_path, {}, 60).failed


def test_a_part_that_was_not_measured_is_listed(tmp_path: Path) -> None:
    """Without a package index, full checks are listed as not measured, and older figures are kept."""
    (tmp_path / "static.md").write_text("older", encoding="utf-8")
    result = Result({"Python": "3"}, skipped={"models": "no index\nhint: check the network"})

    tables.write_figures(result, tmp_path)

    assert "- models: no index hint: check the network\n" in tables.markdown(result)
    assert (tmp_path / "full.md").read_text(encoding="utf-8").endswith("hint: check the network\n")
    assert "older" == (tmp_path / "static.md").read_text(encoding="utf-8")


def test_the_documentation_compares_all_corpora_in_one_table(tmp_path: Path) -> None:
    """One column per corpus; a failed command is explained below the tables, and bounds of no use are left out."""
    own, slow, cat = row("onnxgate check --static", 1), row("slow", 60, exit_status=None), row("cat", 0.1)

    tables.write_figures(
        Result({"Python": "3", "cores": "2"}, (corpus(own, slow, cat), corpus(own, name="huge"))), tmp_path
    )

    shown = (tmp_path / "static.md").read_text(encoding="utf-8")
    assert "on Python 3, 2 cores." in shown
    assert "| onnxgate check --static | 1.00 | 1.00 |" in shown
    assert "| slow | **failed** | - |" in shown
    assert "- slow, ten models: stopped at the limit of 60 s, 3 of 10 models done" in shown
    assert "cat" not in shown


def test_the_documentation_shows_growth_instead_of_the_smaller_corpus(tmp_path: Path) -> None:
    """Nine seconds for 900 more models are 10 ms per model."""
    small, large = corpus(row("own", 1)), corpus(row("own", 10), name="small-1000")

    tables.write_figures(Result({}, (small, large)), tmp_path)

    shown = (tmp_path / "static.md").read_text(encoding="utf-8")
    assert "|  | ten models |\n|---|---:|\n| own | 10.00 |" in shown
    assert "|  | small model |\n|---|---:|\n| own | 10.000 |" in shown
