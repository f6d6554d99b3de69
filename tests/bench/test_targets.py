"""The table of targets: each limit is computed from the same run."""

from __future__ import annotations

from bench.contestants import ALONE, DOCTOR, FULL_WARM, IMPORT, SHA256SUM, STATIC, UNCHANGED
from bench.figures import Pair, Result, Row, WorkResult
from bench.processes import Measurement
from bench.targets import Target, list_targets


def row(name: str, seconds: float, *, peak_mib: float = 10.0, exit_status: int = 0) -> Row:
    """Return a table row with one run."""
    return Row(name, (Measurement(seconds, seconds, peak_mib, exit_status),))


def targets(*rows: Row, name: str, title: str) -> list[Target]:
    """Return the targets of one task."""
    work = WorkResult(name, title, 1, 1, "bound", rows, 2, {"session": 2.0})
    result = Result({"cores": "2"}, (work,)) if name != "ensemble-full" else Result({"cores": "2"}, projects=(work,))
    return list(list_targets(result))


def test_small_models_must_cost_less_than_with_onnx_doctor() -> None:
    """Five seconds are not enough if the peer is faster, and the unchanged check has a separate limit."""
    own = row(f"onnxgate {STATIC}", 4), row(f"onnxgate {UNCHANGED}", 0.5)

    slower = targets(*own, row(DOCTOR, 3), row(IMPORT, 0.2), name="small-1000", title="1,000 small models")
    faster = targets(*own, row(DOCTOR, 8), row(IMPORT, 0.2), name="small-1000", title="1,000 small models")

    assert [False, False] == [target.is_met for target in slower]
    assert [True, False] == [target.is_met for target in faster]
    assert "0.50 x onnx-doctor" in faster[0].measured


def test_an_ensemble_may_take_two_hashes_and_a_second() -> None:
    """The limit is relative to hashing the same file in the same run."""
    bound = row(SHA256SUM, 0.5)
    rows = (row(f"onnxgate {STATIC}", 1.9, peak_mib=401), bound), (row(f"onnxgate {STATIC}", 2.1, peak_mib=399), bound)

    met = [[target.is_met for target in targets(*each, name="ensemble", title="one ensemble")] for each in rows]

    assert [[True, False], [False, True]] == met


def test_full_check_is_compared_with_runtimes() -> None:
    """A full check may use at most 20% more time and memory than the runtimes alone."""
    rows = row(f"onnxgate {FULL_WARM}", 11, peak_mib=1300), row(ALONE, 10, peak_mib=1000)

    actual = targets(*rows, name="ensemble-full", title="one ensemble")

    assert [True, False] == [target.is_met for target in actual]


def test_every_checkout_has_its_targets() -> None:
    """`--also before=…` adds both checkouts to one table."""
    rows = row(f"onnxgate {STATIC}", 1), row(f"before {STATIC}", 9)

    actual = targets(*rows, name="nodes-20000", title="20,000 nodes")

    assert [("20,000 nodes, static", True), ("before: 20,000 nodes, static", False)] == [
        (target.work, target.is_met) for target in actual
    ]


def test_start_up_is_judged_by_elapsed_time() -> None:
    """Start-up is compared by elapsed time, and a target without a valid bound has no result."""
    slow, failed = (
        Pair("start", row("a", 3), row("b", 1), 1.5),
        Pair("start", row("a", 1), row("b", 1, exit_status=1), 1.5),
    )

    actual = list(list_targets(Result({}, pairs=(slow, failed))))

    assert [False, None] == [target.is_met for target in actual]
    assert "" == actual[1].measured
