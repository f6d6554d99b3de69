"""Reproduction of a finding with a minimal set of cases and one command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from onnxgate import rules
from onnxgate.core.findings import Place, RuleHit
from onnxgate.core.jobs import Failure, InputCase
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.evidence.runtime import Attempt, AttemptCase, ModelRuns, Refusal
from onnxgate.gate.results import resolution
from onnxgate.gate.results.verdict import build_command, find_replays, select_shown_replays
from tests.harness.reports.sample_reports import finding

NO = Refusal(failure=Failure(type="Fail", text="no"))
MODEL = "models/m.onnx"
NAMES = ("sizes batch=1 time=16", "sizes batch=3 time=16", "sizes batch=1 time=50", "the source's example")


def _command_of(subjects: Iterable[object]) -> list[RuleHit]:
    return [each for each in resolution.apply_rules(subjects, rules.ALL, {}) if not each.silent]


def _cases(model: str = MODEL) -> dict[str, tuple[InputCase, ...]]:
    return {model: tuple(InputCase(name=name, origin="generated", inputs={}) for name in NAMES)}


def _compared(*differing: str) -> Comparison:
    """Return a comparison whose outputs differ by at least 5 in these cases and agree in all others."""
    differences = tuple(
        Difference(
            output="y",
            case=name,
            optimization="all",
            agrees=name not in differing,
            metric="worst_abs",
            value=5.0 + index if name in differing else 0.0,
            bound=1.0,
            bound_from="type",
        )
        for index, name in enumerate(NAMES)
    )
    place = Place("onnxgate.lock")
    return Comparison(
        model=MODEL, place=place, pair="source", runtime="onnxruntime 1.18.1", reference="the source",
        differences=differences,
    )  # fmt: skip


def _ran(*failing: str) -> ModelRuns:
    """Return runs of all cases, of which the given ones are rejected."""
    attempts = []
    for name in NAMES[:3]:
        sizes = {axis: int(size) for axis, size in (each.split("=") for each in name.split()[1:])}
        done = Attempt(
            optimization="all", outcome="completed", case=AttemptCase(name=name, origin="generated", sizes=sizes)
        )
        refused = msgspec.structs.replace(done, outcome="run-refused", refusal=NO)
        attempts.append(refused if name in failing else done)
    return ModelRuns(model=MODEL, place=Place("m"), runtime="onnxruntime 1.18.1", attempts=tuple(attempts))


def test_worst_case_is_selected() -> None:
    """The case with the largest difference is selected, because the finding shows its value."""
    (replay,) = find_replays([_compared(*NAMES[:2])], _cases(), _command_of, 0, "onnxgate.toml", None)

    assert (replay.cases, replay.rules) == ((NAMES[1],), ("source-mismatch",))
    assert replay.command == f'onnxgate check {MODEL} --stage runtime,parity --case "{NAMES[1]}"'


def test_failing_size_comes_with_a_working_case() -> None:
    """A case that fails due to a size is reproduced with one that runs."""
    (replay,) = find_replays([_ran(NAMES[1])], _cases(), _command_of, 7, "gate.toml", None)

    assert (replay.cases, replay.rules, replay.seed) == ((NAMES[0], NAMES[1]), ("dynamic-axis-broken",), 7)
    assert replay.command.endswith(" --seed 7 --config gate.toml")


def test_nothing_to_replay() -> None:
    """There is no command if all outputs agree or no input case is involved."""
    refused = Attempt(optimization="all", outcome="load-refused", refusal=NO)
    loading = msgspec.structs.replace(_ran(), attempts=(refused,))

    assert find_replays([_compared(), _ran(), loading], _cases(), _command_of, 0, "onnxgate.toml", None) == ()


def test_command_is_read_back_by_a_shell() -> None:
    """Model and axis names are untrusted, so they are quoted for the shell."""
    hostile = '-models/it\'s $(x) "y".onnx'
    subject = msgspec.structs.replace(_compared(NAMES[3]), model=hostile)
    (replay,) = find_replays([subject], _cases(hostile), _command_of, 0, "onnxgate.toml", None)

    words = ["onnxgate", "check", "--stage", "runtime,parity", "--case", NAMES[3], "--", hostile]
    assert words == shlex.split(replay.command)


@pytest.mark.parametrize(
    ("config", "directory", "end"),
    [
        ("onnxgate.toml", "", ""),
        ("onnxgate.toml", "sub/a b", ' --directory "sub/a b"'),
        ("nightly.toml", "", " --config nightly.toml"),
        ("nightly.toml", "sub", " --directory sub --config sub/nightly.toml"),
    ],
)
def test_command_selects_the_configs_folder(config: str, directory: str, end: str) -> None:
    """In another working directory, the command selects the config's folder with `--directory`."""
    typed = build_command("m.onnx", ("a",), 0, config, directory)

    assert typed == f"onnxgate check m.onnx --stage runtime,parity --case a{end}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("-m.onnx", "--case a -- -m.onnx"), ("a\nb.onnx", "check $'a\\nb.onnx' "), ("a b.onnx", 'check "a b.onnx" ')],
)
def test_unusual_names_can_be_pasted(name: str, expected: str) -> None:
    """The command is quoted as any other command."""
    assert expected in build_command(name, ("a",), 0, "onnxgate.toml")


def test_hidden_findings_have_no_command() -> None:
    """Ignored findings and those explained by another finding have no reproduction command."""
    every = find_replays([_compared(NAMES[1])], _cases(), _command_of, 0, "onnxgate.toml", None)
    actual = finding(rule="source-mismatch", model=MODEL)

    assert select_shown_replays(every, [actual]) == every
    assert select_shown_replays(every, [msgspec.structs.replace(actual, ignored="known")]) == ()
    assert select_shown_replays(every, [msgspec.structs.replace(actual, rule="load-failed")]) == ()


def test_inputs_of_the_user_are_files_already(tmp_path: Path) -> None:
    """Inputs of the user are already files, so they are not stored again."""
    own = {MODEL: (InputCase(name="a.npz", origin="user", inputs={"x": str(tmp_path / "absent.npy")}),)}
    subject = _compared(NAMES[1])
    differences = tuple(msgspec.structs.replace(difference, case="a.npz") for difference in subject.differences[1:2])
    subject = msgspec.structs.replace(subject, differences=differences)
    (replay,) = find_replays([subject], own, _command_of, 0, "onnxgate.toml", tmp_path / "inputs")

    assert (replay.cases, replay.inputs) == (("a.npz",), ())
