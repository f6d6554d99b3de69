"""Isolated loads of the nodes of a refused model, evaluated with recorded error messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import onnx
import onnx.parser
import pytest

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Completed, Crashed, Failure, LoadResult, Observation, Refused
from onnxgate.model.reading.view import ModelView
from onnxgate.stages import isolated_nodes
from onnxgate.stages.isolated_nodes import (
    IsolatedLoad,
    LevelRefusal,
    NodeKind,
    RefusingRuntime,
    collect_node_kinds,
)
from onnxgate.stages.runtime import ExecutedModel
from onnxgate.support.matching.operations import NodeProblem, Prediction, SupportGap

# Messages of onnxruntime 1.16.3.
NO_DET = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Det(11) node with name ''"
NO_CONV = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Conv(11) node with name 'c'"
NO_NEG = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Neg(13) node with name ''"
TYPES = "[ONNXRuntimeError] : 1 : FAIL : Type Error: Type (tensor(float)) of output arg (z) of node (n) does not match."
SHAPES = (
    "[ONNXRuntimeError] : 1 : FAIL : Node () Op (Range) [ShapeInferenceError] Input to 'Range' op should be scalars"
)
OPSET = (
    "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:ONNX Runtime only *guarantees* support for models "
    "stamped with official released onnx opset versions. Opset 28 is under development and support for this is limited."
    " Current official support for domain ai.onnx is till opset 26."
)
IR = "[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:Unsupported model IR version: 14, max supported IR"
IR += " version: 10"
CUT_OFF = "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from m.onnx failed:Protobuf parsing failed."
EXTERNAL = "[ONNXRuntimeError] : 1 : FAIL : External data path validation failed: External data path does not exist: "
EXTERNAL += '"w.bin"'

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 18]>'
    "g (double[2, 2] x, double[1, 1, 4, 4] y, double[1, 1, 2, 2] w) => (double d, double[1, 1, 3, 3] e, double f)"
    " { d = Det (x) [c] e = Conv (y, w) [n] f = Neg (d) }"
)
VIEW = ModelView(MODEL)
LOADS = IsolatedLoad("loads")


@pytest.fixture
def model(tmp_path: Path) -> ExecutedModel:
    """Return a model with three nodes, of which the first has no name."""
    return ExecutedModel("m.onnx", Place("onnxgate.lock", 3), VIEW, tmp_path, tmp_path)


def refused_node(text: str) -> IsolatedLoad:
    """Return the result of a node that is refused in isolation."""
    return IsolatedLoad("refused", Failure(type="Fail", text=text))


def refusing(
    *texts: str, misses: Sequence[str] = (), in_full: bool = True, node: str = "", rule: str = "missing-kernel"
) -> RefusingRuntime:
    """Return a runtime that refuses the model, and the operators predicted to be refused."""
    levels = ("all", "disabled")
    refusals = tuple(
        LevelRefusal(level, Failure(type="Fail", text=text), node) for level, text in zip(levels, texts, strict=False)
    )
    actual = tuple(
        NodeProblem(kind.first, SupportGap(rule, f"there is no kernel for `{kind.operation.name}`"))  # type: ignore[arg-type]
        for kind in collect_node_kinds(VIEW)
        if kind.operation.name in misses
    )
    return RefusingRuntime(refusals, Prediction(ir_too_new=False, opsets_too_new=(), found=actual).refused, in_full)


def judged(
    model: ExecutedModel, each: RefusingRuntime, seen: Mapping[str, IsolatedLoad]
) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return outcome, explained levels and predicting rule of each reported node, by operator."""
    kinds = collect_node_kinds(VIEW)
    by_kind = {kind: seen[kind.operation.name] for kind in kinds if kind.operation.name in seen}
    alone = isolated_nodes.evaluate_isolated_nodes(each, kinds, by_kind, model)
    return {one.operator: (one.outcome, one.explains, one.rule) for one in alone}


def names(kinds: Sequence[NodeKind]) -> list[str]:
    """Return the names of the operators."""
    return [kind.operation.name for kind in kinds]


def test_refused_node_confirms_its_prediction(model: ExecutedModel) -> None:
    """Both the node that the model fails at and nodes after it are confirmed."""
    findings = judged(
        model, refusing(NO_DET, misses=("Det", "Conv")), {"Det": refused_node(NO_DET), "Conv": refused_node(NO_CONV)}
    )

    assert {
        "Det": ("refused", ("all",), "missing-kernel"),
        "Conv": ("refused", (), "missing-kernel"),
    } == findings


def test_loading_node_contradicts_if_the_refusal_has_another_cause(model: ExecutedModel) -> None:
    """A node that loads contradicts its prediction if the refusal names another cause."""
    seen = {"Det": refused_node(NO_DET), "Conv": LOADS}

    assert "loads" == judged(model, refusing(NO_DET, misses=("Det", "Conv")), seen)["Conv"][0]
    assert "loads" == judged(model, refusing(TYPES, misses=("Conv",), node="n"), {"Conv": LOADS})["Conv"][0]
    assert "loads" == judged(model, refusing(EXTERNAL, misses=("Conv",)), {"Conv": LOADS})["Conv"][0]


def test_loading_node_is_inconclusive_without_another_cause(model: ExecutedModel) -> None:
    """Without another cause, a node that loads in isolation may still be refused in the context of the model."""
    assert {"Conv": ("unknown", (), "missing-kernel")} == judged(
        model, refusing(SHAPES, misses=("Conv",)), {"Conv": LOADS}
    )


def test_every_level_needs_its_cause(model: ExecutedModel) -> None:
    """An explanation of one level's refusal does not explain the other level's."""
    seen = {"Det": refused_node(NO_DET), "Conv": LOADS}
    findings = judged(model, refusing(NO_DET, SHAPES, misses=("Det", "Conv")), seen)

    assert ("refused", ("all",), "missing-kernel") == findings["Det"]
    assert "unknown" == findings["Conv"][0]


def test_message_of_the_model_confirms_prediction(model: ExecutedModel) -> None:
    """The model's message confirms a prediction if it names the node, or an operator with only one node."""
    conv = {"Conv": LOADS}

    assert ("refused", ("all",), "missing-kernel") == judged(
        model, refusing(NO_CONV, misses=("Conv",), node="c"), conv
    )["Conv"]
    assert ("refused", ("all",), "missing-kernel") == judged(model, refusing(NO_CONV, misses=("Conv",)), conv)["Conv"]
    assert "unknown" == judged(model, refusing(TYPES, misses=("Conv",), node="c"), conv)["Conv"][0]


SQUEEZED = ModelView(
    onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        "g (float[N] x, float[1] y) => (float[M] z) { s = Squeeze (x) z = Concat <axis = 0> (s, y) }"
    )
)
RANKS = "Node (c) Op (Concat) [ShapeInferenceError] rank must be greater than axis"
CLAIM = "`Squeeze(1)` without `axes` and with an unknown size is taken for a scalar, and then `Concat` fails"


@pytest.mark.parametrize(("text", "outcome"), [(RANKS, "refused"), (RANKS.replace("Concat", "Gemm"), "unknown")])
def test_node_that_fails_only_next_to_others(tmp_path: Path, text: str, outcome: str) -> None:
    """A node whose neighbor is refused loads in isolation, which does not contradict the prediction."""
    kinds = collect_node_kinds(SQUEEZED)
    squeeze = kinds[0].first
    traits = msgspec.structs.replace(squeeze.operation.traits, as_scalar="`Concat` fails")
    kinds[0].first = msgspec.structs.replace(
        squeeze, operation=msgspec.structs.replace(squeeze.operation, traits=traits)
    )
    actual = NodeProblem(kinds[0].first, SupportGap("attribute-unsupported", CLAIM))
    prediction = Prediction(ir_too_new=False, opsets_too_new=(), found=(actual,)).refused
    each = RefusingRuntime(refusing(text, node="c").refusals, prediction, in_full=True)
    model = ExecutedModel("m.onnx", Place("onnxgate.lock", 3), SQUEEZED, tmp_path, tmp_path)

    assert [outcome] == [
        one.outcome for one in isolated_nodes.evaluate_isolated_nodes(each, kinds, {kinds[0]: LOADS}, model)
    ]


def test_shared_operator_does_not_identify_a_node(tmp_path: Path) -> None:
    """If several nodes have the operator, the message may be about another one."""
    two = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        "g (double[2, 2] x, float[2, 2] y) => (double d, float e) { d = Det (x) e = Det (y) }"
    )
    first, second = collect_node_kinds(ModelView(two))
    actual = NodeProblem(first.first, SupportGap("missing-kernel", "there is no kernel for `Det`"))
    prediction = Prediction(ir_too_new=False, opsets_too_new=(), found=(actual,)).refused
    each = RefusingRuntime(refusing(NO_DET).refusals, prediction, in_full=True)
    place = ExecutedModel("m.onnx", Place("onnxgate.lock", 3), ModelView(two), tmp_path, tmp_path)

    assert ["unknown"] == [
        one.outcome for one in isolated_nodes.evaluate_isolated_nodes(each, (first, second), {first: LOADS}, place)
    ]


def test_only_the_inner_node_is_refused(tmp_path: Path) -> None:
    """Only the inner node is refused."""
    nested = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        "g (bool b, double[2, 2] x) => (double d) { d = If (b) <"
        " then_branch = t () => (double p) { p = Det (x) }, else_branch = e () => (double q) { q = Det (x) }> }"
    )
    kinds = collect_node_kinds(ModelView(nested))
    place = ExecutedModel("m.onnx", Place("onnxgate.lock", 3), ModelView(nested), tmp_path, tmp_path)
    actual = isolated_nodes.evaluate_isolated_nodes(
        refusing(NO_DET, in_full=False), kinds, {kind: refused_node(NO_DET) for kind in kinds}, place
    )

    assert ["Det", "If"] == [kind.operation.name for kind in kinds]
    assert ["Det"] == [each.operator for each in actual]


def test_unloaded_node_is_unknown(model: ExecutedModel) -> None:
    """The outcome is unknown if the node crashed or was not loaded."""
    unknown = refusing(NO_DET, misses=("Det", "Conv"))

    assert (
        "unknown" == judged(model, unknown, {"Det": refused_node(NO_DET), "Conv": IsolatedLoad("unknown")})["Conv"][0]
    )
    assert "unknown" == judged(model, unknown, {"Det": refused_node(NO_DET)})["Conv"][0]


def test_missing_context_is_not_a_refusal(model: ExecutedModel) -> None:
    """Errors about missing shapes or constants count only if predicted, or if the model has the same error."""
    seen = {"Conv": refused_node(SHAPES), "Det": refused_node(NO_DET)}
    attribute = refusing(NO_DET, misses=("Conv",), rule="attribute-unsupported")

    assert "unknown" == judged(model, refusing(NO_DET, misses=("Det", "Conv")), seen)["Conv"][0]
    assert "refused" == judged(model, refusing(SHAPES, misses=("Conv",)), seen)["Conv"][0]
    assert "refused" == judged(model, attribute, seen)["Conv"][0]


def test_unpredicted_refusals_are_reported(model: ExecutedModel) -> None:
    """Refused nodes without a prediction are reported, except those that only lack shapes or constants in isolation."""
    seen = {"Det": refused_node(NO_DET), "Conv": refused_node(SHAPES), "Neg": LOADS}

    assert {"Det": ("refused", ("all",), "")} == judged(model, refusing(NO_DET, in_full=False), seen)


def test_other_nodes_are_loaded_without_explanation() -> None:
    """Other nodes are loaded in isolation only if neither a prediction nor the message explains the refusal."""
    kinds = collect_node_kinds(VIEW)
    det = {kinds[0]: refused_node(NO_DET)}

    assert ["Det", "Conv", "Neg"] == names(isolated_nodes.select_remaining_kinds(refusing(NO_NEG), kinds, {}))
    assert ["Conv", "Neg"] == names(
        isolated_nodes.select_remaining_kinds(refusing(NO_NEG, misses=("Det",)), kinds, det)
    )
    assert [] == names(isolated_nodes.select_remaining_kinds(refusing(NO_DET, misses=("Det",)), kinds, det))
    assert [] == names(isolated_nodes.select_remaining_kinds(refusing(NO_NEG, node="n"), kinds, {}))
    assert ["Det", "Conv", "Neg"] == names(
        isolated_nodes.select_remaining_kinds(refusing(NO_NEG, node="n", in_full=False), kinds, {})
    )
    assert [] == names(isolated_nodes.select_remaining_kinds(refusing(IR), kinds, {}))


def test_only_predicted_nodes_are_selected() -> None:
    """Only nodes with a prediction are selected."""
    assert ["Det", "Neg"] == names(
        isolated_nodes.select_predicted_kinds(refusing(NO_DET, misses=("Det", "Neg")), collect_node_kinds(VIEW))
    )


def test_nodes_are_not_loaded_if_the_model_is_unreadable() -> None:
    """Nodes are not loaded in isolation if the file is unreadable or its `ai.onnx` opset is unsupported."""
    assert refusing(CUT_OFF).is_hopeless
    assert refusing(OPSET).is_hopeless
    assert not refusing(IR).is_hopeless
    assert not refusing(NO_DET).is_hopeless


def observed(text: str, *, memory: bool = False) -> Observation:
    """Return the observation of a refused node."""
    return Refused(failure=Failure(type="Fail", text=text, memory=memory))


def test_an_outcome_is_that_of_all_levels() -> None:
    """One refused level is enough; errors about version fields or memory, and crashes, have an unknown outcome."""
    fine = Completed(result=LoadResult(providers=("CPUExecutionProvider",)))
    crashed = Crashed(signal="SIGSEGV", during="load", log="")

    assert LOADS == isolated_nodes.combine_levels([fine, fine])
    assert refused_node(NO_DET) == isolated_nodes.combine_levels([fine, observed(NO_DET)])
    assert "unknown" == isolated_nodes.combine_levels([fine, crashed]).outcome
    assert "unknown" == isolated_nodes.combine_levels([observed(OPSET)]).outcome
    assert "unknown" == isolated_nodes.combine_levels([observed("out of it", memory=True)]).outcome
    assert "unknown" == isolated_nodes.combine_levels([]).outcome
