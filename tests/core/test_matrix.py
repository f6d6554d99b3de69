"""Support matrix: the verdict, and the sentence about the releases that load a model."""

from __future__ import annotations

import pytest

from onnxgate.core.matrix import (
    NO_KERNELS,
    Entry,
    MatrixModel,
    Observed,
    Predicted,
    Reason,
    describe_missing_data,
    describe_working_range,
    list_load_failures,
    list_reasons,
    render_reason,
)
from tests.harness.reports.sample_matrices import KERNEL, entry, model

WHY = "missing-kernel: node `det`: there is no kernel for `Det(22)`"
NO_KERNEL = "node `det`: there is no kernel for `Det(22)`"
OPSET = Reason(rule="opset-too-new", node="", message="imports opset 21 of `ai.onnx`", works_since="1.18.0")
IR = Reason(rule="ir-version-too-new", node="", message="uses IR version 11", works_since="1.18.0")
EXPERIMENTAL = Reason(
    rule="opset-experimental",
    node="",
    message="imports opset 21 of `ai.onnx`, which is under development",
    works_since="1.18.0",
)
DEPRECATED = Reason(rule="deprecated-operator", node="", message="`Scatter` is deprecated since opset 11")


def sentence(*entries: Entry) -> str:
    """Return the sentence for a model with these entries."""
    return describe_working_range(MatrixModel(path="m.onnx", runtimes=entries)).sentence


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("++++++", "loads on onnxruntime 1.16.0–1.18.1"),
        ("xx++++", f"loads on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 refused: {NO_KERNEL}"),
        ("x+++++", f"loads on onnxruntime 1.16.3–1.18.1; 1.16.0 refused: {NO_KERNEL}"),
        ("++++xx", f"loads on onnxruntime 1.16.0–1.17.3; 1.18.0–1.18.1 refused: {NO_KERNEL}"),
        ("xxxx++", f"loads on onnxruntime 1.18.0–1.18.1; 1.16.0–1.17.3 refused: {NO_KERNEL}"),
        ("+++x++", f"loads on onnxruntime 1.16.0–1.17.1 and 1.18.0–1.18.1; 1.17.3 refused: {NO_KERNEL}"),
        ("x++++x", f"loads on onnxruntime 1.16.3–1.18.0; 1.16.0 and 1.18.1 refused: {NO_KERNEL}"),
        ("??++++", f"loads on onnxruntime 1.17.1–1.18.1; 1.16.0–1.16.3 unknown: {NO_KERNEL}"),
        ("xxxxxx", f"does not load on onnxruntime 1.16.0–1.18.1: {NO_KERNEL}"),
        ("??xxxx", f"does not load on onnxruntime 1.17.1–1.18.1: {NO_KERNEL}; 1.16.0–1.16.3 unknown: {NO_KERNEL}"),
        ("??????", f"could not be predicted on onnxruntime 1.16.0–1.18.1: {NO_KERNEL}"),
    ],
)
def test_the_working_range(letters: str, expected: str) -> None:
    """All ranges end with exact releases."""
    assert expected == describe_working_range(model(letters)).sentence


def test_each_reason_is_named_once() -> None:
    """The sentence contains the fewest reasons that cover all releases, because the others would be redundant."""
    entries = (
        entry("1.16.3", "refused", IR, OPSET),
        entry("1.17.3", "refused", IR),
        entry("1.18.1", "loads"),
    )
    working = describe_working_range(MatrixModel(path="m.onnx", runtimes=entries))

    assert (
        working.sentence == "loads on onnxruntime 1.18.1; 1.16.3–1.17.3 refused: IR version 11, supported since 1.18.0"
    )
    assert working.named == (IR,)
    assert working.omitted == 1


def test_the_reason_of_most_releases_is_named() -> None:
    """The reason that covers the most releases is preferred, because another one would need a second clause."""
    entries = (
        entry("1.16.3", "refused", IR),
        entry("1.17.3", "refused", DEPRECATED, IR),
        entry("1.18.1", "loads"),
    )

    assert sentence(*entries) == (
        "loads on onnxruntime 1.18.1; 1.16.3–1.17.3 refused: IR version 11, supported since 1.18.0"
    )


def test_reasons_of_other_releases() -> None:
    """Reasons that cover different releases have separate clauses; the newest releases come first."""
    entries = (
        entry("1.16.3", "refused", OPSET),
        entry("1.17.3", "refused", KERNEL),
        entry("1.18.1", "loads"),
    )

    assert sentence(*entries) == (
        f"loads on onnxruntime 1.18.1; 1.17.3 refused: {NO_KERNEL}; "
        "1.16.3 refused: opset 21 of `ai.onnx`, supported since 1.18.0"
    )


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ((OPSET,), "opset 21 of `ai.onnx`, supported since 1.18.0"),
        ((IR, OPSET), "IR version 11 and opset 21 of `ai.onnx`, supported since 1.18.0"),
        ((IR, OPSET, KERNEL), "IR version 11 and opset 21 of `ai.onnx`, supported since 1.18.0 (and 1 more reason)"),
        ((Reason(rule=IR.rule, node="", message=IR.message),), "IR version 11"),
        ((EXPERIMENTAL,), "opset 21 of `ai.onnx`, supported since 1.18.0"),
        ((DEPRECATED,), "`Scatter` is deprecated since opset 11"),
        (
            (Reason(rule="missing-kernel", node="", message="has no kernel", works_since="1.18.1"),),
            "has no kernel (works since 1.18.1)",
        ),
    ],
)
def test_reasons(reasons: tuple[Reason, ...], expected: str) -> None:
    """Version fields are named together; what a release supports need not be predicted to load there."""
    entries = (entry("1.17.3", "refused", *reasons), entry("1.18.0", "unknown"), entry("1.18.1", "loads"))

    assert f"; 1.17.3 refused: {expected}" in sentence(*entries)


def test_an_equal_description_is_not_repeated() -> None:
    """An opset that some releases support experimentally is one reason, not two."""
    entries = (
        entry("1.15.1", "refused", OPSET),
        entry("1.16.3", "refused", EXPERIMENTAL),
        entry("1.17.3", "refused", OPSET),
        entry("1.18.0", "loads"),
    )

    assert sentence(*entries) == (
        "loads on onnxruntime 1.18.0; 1.15.1–1.17.3 refused: opset 21 of `ai.onnx`, supported since 1.18.0"
    )


def test_a_model_that_could_not_be_run() -> None:
    """After an attempt to load the model, the sentence is not about a prediction."""
    late = entry("1.17.3", "loads", observed="timed-out", error="did not end")
    absent = entry("1.18.1", "unknown", NO_KERNELS, observed="unavailable", error="no wheels")

    assert sentence(late) == "could not be run on onnxruntime 1.17.3: did not end"
    assert sentence(absent) == "could not be run on onnxruntime 1.18.1: no wheels"


def test_a_version_that_no_release_supports() -> None:
    """If no release supports a version, the sentence suggests no newer release."""
    newest = Reason(rule=IR.rule, node="", message=IR.message)

    assert sentence(entry("1.17.3", "refused", newest), entry("1.18.1", "refused", newest)) == (
        "does not load on onnxruntime 1.17.3–1.18.1: IR version 11, not supported by any release yet"
    )


def test_a_single_release() -> None:
    """A single release is not written as a range."""
    refused, unknown = entry("1.18.1", "refused"), entry("1.15.1", "unknown", NO_KERNELS)

    assert sentence(refused) == f"does not load on onnxruntime 1.18.1: {NO_KERNEL}"
    assert sentence(unknown) == "could not be predicted on onnxruntime 1.15.1: no kernel data"


def test_releases_without_kernel_data() -> None:
    """They are named once for all models, because an unknown result is not a pass; a requirement names them itself."""
    first = entry("1.14.1", "refused"), entry("1.15.1", "unknown", NO_KERNELS), entry("1.16.0", "loads")
    second = entry("1.14.1", "unknown", NO_KERNELS), *first[1:]
    models = [MatrixModel(path=path, runtimes=entries) for path, entries in (("a", first), ("b", second))]

    assert sentence(*second) == "loads on onnxruntime 1.16.0"
    assert sentence(entry("1.14.1", "refused"), first[1]) == f"does not load on onnxruntime 1.14.1: {NO_KERNEL}"
    assert describe_missing_data(models[:1]) == (
        "onnxgate has no kernel data for onnxruntime 1.15.1, so it can predict that these releases refuse "
        "a model, but not that they load it"
    )
    assert describe_missing_data(models) == (
        "onnxgate has no kernel data for onnxruntime 1.14.1–1.15.1, so it can predict that these releases refuse "
        "a model, but not that they load it"
    )
    assert describe_working_range(models[1], required=True).sentence == (
        "could not be predicted on onnxruntime 1.14.1–1.15.1: no kernel data; loads on 1.16.0"
    )


def test_all_reasons() -> None:
    """Each reason is listed with its releases and the detail of the newest of them."""
    up_to = [
        Reason(rule=OPSET.rule, node="", message=OPSET.message, detail=f"supports opsets up to {n}") for n in (19, 20)
    ]
    entries = (entry("1.16.3", "refused", up_to[0], KERNEL), entry("1.17.3", "refused", up_to[1]))
    spans = list_reasons(MatrixModel(path="m.onnx", runtimes=entries))

    assert [(span.reason, span.runtimes) for span in spans] == [
        (up_to[1], ("onnxruntime 1.16.3", "onnxruntime 1.17.3")),
        (KERNEL, ("onnxruntime 1.16.3",)),
    ]


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
def test_state(predicted: Predicted, observed: Observed, state: Predicted, contradicted: bool) -> None:
    """An observation replaces the prediction, unless it is inconclusive."""
    seen = entry("1.18.1", predicted, observed=observed)

    assert (state, contradicted) == (seen.state, seen.contradicted)


@pytest.mark.parametrize(
    ("letters", "verdict"),
    [
        ("+xxxxx", "pass"),
        ("?????+", "pass"),
        ("xxxxxx", "fail"),
        ("??xxxx", "fail"),
        ("xxxx??", "undecided"),
        ("??????", "undecided"),
    ],
)
def test_the_verdict(letters: str, verdict: str) -> None:
    """If no release loads the model, it fails if the newest one rejects it, and is undecided otherwise."""
    assert verdict == model(letters).rate(required=False)


@pytest.mark.parametrize(
    ("letters", "verdict"), [("++++++", "pass"), ("x+++++", "fail"), ("?+++++", "undecided"), ("?++++x", "fail")]
)
def test_required_releases(letters: str, verdict: str) -> None:
    """With `--target`, a model has to load on every release."""
    assert verdict == model(letters).rate(required=True)


def test_observed_failures_are_errors() -> None:
    """Failures that no prediction explains are errors; releases with the same error share one."""
    entries = (
        entry("1.16.3", "refused", observed="refused", error="explained"),
        entry("1.17.1", "loads", observed="refused", error="Type Error"),
        entry("1.17.3", "unknown", observed="refused", error="Type Error"),
        entry("1.18.0", "loads", observed="crashed", error="SIGSEGV"),
        entry("1.18.1", "loads", observed="timed-out", error="did not end"),
    )
    failures = list_load_failures(MatrixModel(path="m.onnx", runtimes=entries))

    assert [(it.rule, it.level, it.message, it.runtimes) for it in failures] == [
        ("runtime-crashed", "error", "does not load: SIGSEGV", ("onnxruntime 1.18.0",)),
        ("load-failed", "error", "does not load: Type Error", ("onnxruntime 1.17.1", "onnxruntime 1.17.3")),
    ]


@pytest.mark.parametrize(
    ("predicted", "observed", "expected"),
    [
        ("refused", "refused", WHY),
        ("refused", "unavailable", WHY),
        ("refused", "crashed", "runtime-crashed: error text"),
        ("refused", "timed-out", "runtime-timed-out: error text"),
        ("loads", "refused", "load-failed: error text"),
        ("unknown", "refused", "load-failed: error text"),
        ("unknown", "unavailable", "error text"),
    ],
)
def test_the_reason_of_an_observation(predicted: Predicted, observed: Observed, expected: str) -> None:
    """If a run confirms the prediction, the predicted reason is used; if not, the error of the runtime."""
    [reason] = entry("1.18.1", predicted, observed=observed, error="error text").effective_reasons

    assert expected == render_reason(reason)


def test_a_fault_of_the_file_explains_a_failed_load() -> None:
    """A model that is not valid has one error, not a second one about its loading."""
    invalid = Reason(rule="invalid-model", node="", message="is not valid ONNX")
    seen = entry("1.18.1", "unknown", invalid, observed="refused", error="error text")

    assert seen.effective_reasons == (invalid,)
    assert list(list_load_failures(MatrixModel(path="m.onnx", runtimes=(seen,)))) == []
