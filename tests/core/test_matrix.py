"""What follows from a matrix: what counts, the verdict, and the sentence that says where a model loads."""

from __future__ import annotations

import pytest

from onnxgate.core.matrix import (
    NO_KERNELS,
    MatrixModel,
    Observed,
    Predicted,
    Reason,
    build_matrix,
    describe_working_range,
    group_by_reason,
)
from tests.harness.reports.sample_matrices import KERNEL, entry, matrix, model

WHY = "missing-kernel: node `det`: there is no kernel for `Det(22)`"
LACKS = "lacks a kernel for `Det(22)`"
TOO_NEW = Reason(rule="opset-too-new", node="", message="imports opset 21 of `ai.onnx`")
IR = Reason(rule="ir-version-too-new", node="", message="uses IR version 11")
DEPRECATED = Reason(rule="deprecated-operator", node="", message="`Scatter` is deprecated since opset 11")


@pytest.mark.parametrize(
    ("letters", "sentence"),
    [
        ("++++++", "loads on onnxruntime 1.16.0–1.18.1"),
        ("xx++++", f"loads on onnxruntime 1.17.1–1.18.1; 1.16 {LACKS}"),
        ("x+++++", f"loads on onnxruntime 1.16.3–1.18.1; 1.16.0 {LACKS}"),
        ("++++xx", f"loads on onnxruntime 1.16.0–1.17.3; 1.18 {LACKS}"),
        ("xxxx++", f"loads on onnxruntime 1.18.0 and 1.18.1; 1.17 {LACKS}"),
        ("+++x++", f"loads on onnxruntime 1.16.0–1.17.1, 1.18.0 and 1.18.1; 1.17.3 {LACKS}"),
        ("??++++", "loads on onnxruntime 1.17.1–1.18.1; not known on 1.16.0 and 1.16.3"),
        ("xxxxxx", f"loads on none of 6 releases; 1.18 {LACKS}"),
        ("??xxxx", f"loads on none of 4 releases; 1.18 {LACKS}; not known on 1.16.0 and 1.16.3"),
        ("??????", "is not known to load on any of 6 releases"),
    ],
)
def test_the_sentence(letters: str, sentence: str) -> None:
    """Ranges with their gaps, why the nearest release refuses the model, and where nothing is known."""
    assert sentence == describe_working_range(model(letters)).sentence


def test_the_nearest_release_speaks_and_none_is_lost() -> None:
    """Just below where the model loads; the details, and what farther ones have against it, stand in the list."""
    entries = (
        entry("1.16.0", "refused", IR),
        entry("1.17.3", "refused", KERNEL),
        entry("1.18.1", "loads"),
        entry("1.19.2", "refused", IR),
    )
    found = describe_working_range(MatrixModel(path="m.onnx", runtimes=entries))

    assert found.sentence == f"loads on onnxruntime 1.18.1; 1.17.3 {LACKS}"
    assert [group.runtimes for group in found.others] == [
        ("onnxruntime 1.16.0", "onnxruntime 1.19.2"),
        ("onnxruntime 1.17.3",),
    ]


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ((TOO_NEW,), "lacks opset 21 of `ai.onnx`"),
        ((IR,), "does not support IR version 11"),
        ((IR, TOO_NEW, KERNEL), "does not support IR version 11 (the first of 3 reasons)"),
        ((DEPRECATED,), "refuses it: `Scatter` is deprecated since opset 11"),
    ],
)
def test_what_the_nearest_release_lacks(reasons: tuple[Reason, ...], said: str) -> None:
    """In the fewest words, and how many reasons there are."""
    entries = (entry("1.17.3", "refused", *reasons), entry("1.18.1", "loads"))
    found = describe_working_range(MatrixModel(path="m.onnx", runtimes=entries))

    assert found.sentence == f"loads on onnxruntime 1.18.1; 1.17.3 {said}"


def test_a_single_release() -> None:
    """Nobody counts to one."""
    entries = (entry("1.18.1", "refused"), entry("1.18.1", "unknown"), entry("1.15.1", "unknown", NO_KERNELS))
    found = [describe_working_range(MatrixModel(path="m.onnx", runtimes=(each,))) for each in entries]

    assert [each.sentence for each in found] == [
        f"does not load on onnxruntime 1.18.1, which {LACKS}",
        "is not known to load on onnxruntime 1.18.1",
        "is not known to load on onnxruntime 1.15.1; kernels are not known on 1.15.1",
    ]


def test_releases_of_which_no_kernels_are_known() -> None:
    """The sentence says all that there is to say of them."""
    entries = (entry("1.15.1", "unknown", NO_KERNELS), entry("1.16.0", "loads"))
    found = describe_working_range(MatrixModel(path="m.onnx", runtimes=entries))

    assert found.sentence == "loads on onnxruntime 1.16.0; kernels are not known on 1.15.1"
    assert found.others == ()


def test_what_the_newest_of_them_has() -> None:
    """Releases that differ only in what they implement instead are said together."""
    up_to = [
        Reason(rule=TOO_NEW.rule, node="", message=TOO_NEW.message, detail=f"supports up to {n}") for n in (19, 20)
    ]
    entries = (entry("1.16.3", "refused", up_to[0], KERNEL), entry("1.17.3", "refused", up_to[1]))
    [group] = group_by_reason(MatrixModel(path="m.onnx", runtimes=entries))

    assert group.because == (
        "opset-too-new: imports opset 21 of `ai.onnx` (1.17.3 supports up to 20), and 1 more reason"
    )


@pytest.mark.parametrize(
    ("predicted", "observed", "state", "contradicted"),
    [
        ("loads", "", "loads", False),
        ("loads", "loads", "loads", False),
        ("loads", "refused", "refused", True),
        ("loads", "crashed", "refused", True),
        ("loads", "timed-out", "unknown", False),
        ("loads", "unavailable", "loads", False),
        ("refused", "", "refused", False),
        ("refused", "refused", "refused", False),
        ("refused", "crashed", "refused", False),
        ("refused", "loads", "loads", True),
        ("refused", "timed-out", "unknown", False),
        ("unknown", "loads", "loads", False),
        ("unknown", "refused", "refused", False),
        ("unknown", "unavailable", "unknown", False),
    ],
)
def test_what_was_seen_counts(predicted: Predicted, observed: Observed, state: Predicted, contradicted: bool) -> None:
    """It decides over what was predicted; where nothing was seen, the prediction stands."""
    seen = entry("1.18.1", predicted, observed=observed)

    assert (state, contradicted) == (seen.state, seen.contradicted)


@pytest.mark.parametrize(
    ("models", "verdict", "status"),
    [
        (["+xxxxx", "?????+"], "pass", 0),
        (["++++++", "xxxxxx"], "fail", 1),
        (["++++++", "xxxx??"], "undecided", 3),
        (["++++++", "??xxxx"], "fail", 1),
        (["xxxxxx", "??????"], "fail", 1),
    ],
)
def test_the_verdict(models: list[str], verdict: str, status: int) -> None:
    """A model that no release is known to load fails where the newest refuses it; otherwise it is no pass."""
    summed = matrix(*map(model, models))

    assert (verdict, status) == (summed.verdict, summed.exit)


@pytest.mark.parametrize(("observed", "status"), [("unavailable", 3), ("timed-out", 3), ("refused", 0), ("loads", 0)])
def test_what_could_not_be_verified_is_no_pass(observed: Observed, status: int) -> None:
    """Verification was asked for: where it could not be done, there is no verdict."""
    entries = (entry("1.17.3", "loads", observed=observed), entry("1.18.1", "loads", observed="loads"))
    summed = build_matrix([MatrixModel(path="m.onnx", runtimes=entries)], "0.1.0")

    assert status == summed.exit


@pytest.mark.parametrize(
    ("predicted", "observed", "because"),
    [
        ("refused", "refused", WHY),
        ("refused", "unavailable", WHY),
        ("refused", "crashed", "said"),
        ("refused", "timed-out", "said"),
        ("loads", "refused", "said"),
        ("unknown", "refused", "said"),
    ],
)
def test_which_reason_is_given(predicted: Predicted, observed: Observed, because: str) -> None:
    """The one that was predicted and came true, else the runtime's own words; none is an environment's."""
    [group] = group_by_reason(
        MatrixModel(path="m.onnx", runtimes=(entry("1.18.1", predicted, observed=observed, error="said"),))
    )

    assert because == group.because


def test_a_model_that_loads_and_is_wrong() -> None:
    """What its file says is not lost where a release was seen to load it all the same; want of data is no doubt."""
    pointer = Reason(rule="external-data-corrupt", node="", message="keeps weights in a Git LFS pointer")
    no_data = Reason(rule="no-support-data", node="", message="the kernels are not known")
    seen = [entry("1.18.1", "unknown", reason, observed="loads") for reason in (pointer, no_data)]
    said = [describe_working_range(MatrixModel(path="m.onnx", runtimes=(each,))).sentence for each in seen]

    assert said == [
        "loads on onnxruntime 1.18.1, although external-data-corrupt: keeps weights in a Git LFS pointer",
        "loads on onnxruntime 1.18.1",
    ]
