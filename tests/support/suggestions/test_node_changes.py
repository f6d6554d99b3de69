"""Changes to the inputs, outputs and attributes of a node are found that engines with conditions accept."""

from __future__ import annotations

import pytest

from onnxgate.support import harvest
from onnxgate.support.limits import Limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import FeatureChange, NodeChange, Suggestion, SupportGap
from onnxgate.support.operators import ConditionRow, Implementation, KernelRow, TableSource, build_implementations
from onnxgate.support.suggestions.node_changes import find_node_changes
from onnxgate.support.suggestions.search import (
    RequiredRelease,
    SupportGapGroup,
    find_implemented_span,
    find_suggestions,
)
from tests.support.matching.probed.test_node_matching import UNSQUEEZE_BY_INPUT, make_implementation, make_kernel, read

MOD = "g (float[N] a, float[N] b) => (float[N] y) { y = Mod <fmod: int = 0> (a, b) }"
DROPOUT = "g (float[N] x, float r, bool t) => (float[N] y) { y = Dropout (x, r, t) }"
CONCAT = "g (float[N] a, float[N] b) => (float[M] y) { y = Concat <axis: int = 0> (a, b) }"
STATISTICS = "float[2] s, float[2] b, float[2] m, float[2] v"
NORMALIZATION = f"g (float[1, 2] x, {STATISTICS}) => (float[1, 2] y) {{ y = BatchNormalization (x, s, b, m, v) }}"


def refuse(operator: str, version: int, *conditions: tuple[str, ...]) -> Implementation:
    """Return a release that refuses an operator on these conditions."""
    rows = [(operator, ConditionRow(version, condition, 1)) for condition in conditions]
    return make_implementation((operator, make_kernel(version)), *rows)


@pytest.mark.parametrize(
    ("text", "implementation", "expected"),
    [
        (UNSQUEEZE_BY_INPUT, refuse("Unsqueeze", 13, ("axes: dynamic",)), [("constant", "axes")]),
        (DROPOUT, refuse("Dropout", 13, ("training_mode: dynamic",)), [("constant", "training_mode")]),
        (DROPOUT, refuse("Dropout", 13, ("ratio: given",)), [("omitted", "ratio")]),
        (MOD, refuse("Mod", 13, ("T=tensor(float)", "fmod: zero")), [("value", "fmod")]),
        (MOD, refuse("Mod", 13, ("fmod: set",)), [("unset", "fmod")]),
        (MOD, refuse("Mod", 13, ("inputs: not constant",)), []),
        (CONCAT, refuse("Concat", 13, ("T=tensor(float)",)), []),
        (
            "g (seq(float[2]) s, int64 i) => (float[2] y) { y = SequenceAt (s, i) }",
            refuse("SequenceAt", 11, ("input_sequence: model input",)),
            [("not model input", "input_sequence")],
        ),
        (
            "g (float[2] x) => (seq(float[2]) s) { s = SequenceConstruct (x) }",
            refuse("SequenceConstruct", 11, ("output_sequence: model output",)),
            [("not model output", "output_sequence")],
        ),
    ],
)
def test_one_change_is_enough(text: str, implementation: Implementation, expected: list[tuple[str, str]]) -> None:
    """A change is proposed only if no condition applies after it, and the removal of an input only if it is needed."""
    actual = find_node_changes(read(text).nodes[0], [implementation])

    assert expected == [(change.kind, change.name) for way in actual for change in way.changes]
    assert all(len(way.changes) == 1 for way in actual)


def test_accepted_features_need_no_change() -> None:
    """If a node is refused for another reason, such as a dynamic size, changes of its features are useless."""
    assert find_node_changes(read(DROPOUT).nodes[0], [refuse("Dropout", 13, ("ratio: omitted",))]) == []


def test_several_changes_can_be_necessary() -> None:
    """If each of several inputs must be constant, one proposal names all of them, and no others."""
    implementation = refuse("BatchNormalization", 15, ("scale: dynamic",), ("B: dynamic",), ("input_var: dynamic",))
    (way,) = find_node_changes(read(NORMALIZATION).nodes[0], [implementation])

    assert [("constant", name) for name in ("scale", "B", "input_var")] == [(it.kind, it.name) for it in way.changes]


def test_a_node_is_not_moved_out_of_the_model() -> None:
    """A node whose inputs are all constant is accepted, but its result would no longer depend on the model's input."""
    implementation = refuse("Unsqueeze", 13, ("axes: dynamic",), ("data: dynamic",))

    assert [] == find_node_changes(read(UNSQUEEZE_BY_INPUT).nodes[0], [implementation])


def test_a_change_must_help_all_nodes_of_a_finding() -> None:
    """Nodes that are refused for the same reason can have different other inputs."""
    implementation = refuse("Mod", 13, ("fmod: zero",), ("A: rank 2",))
    first, second = (read(MOD.replace("[N]", shape)).nodes[0] for shape in ("[N]", "[N, 2]"))
    release = RequiredRelease(implementation, Limits(ir=None, opsets={}))
    gap = SupportGap("attribute-unsupported", "`Mod(13)` is refused with `fmod` = `0`")
    group = SupportGapGroup(gap, (first.operation, second.operation), (first, second))

    assert () == find_suggestions(group, read(MOD), [release])


def suggest(text: str, *implementations: Implementation) -> tuple[Suggestion, ...]:
    """Return the suggestions for the first node, which the last release refuses."""
    model = read(text)
    node = model.nodes[0]
    gap = predict(model, implementations[-1], Limits(ir=None, opsets={})).found[0].miss
    assert gap is not None
    releases = [RequiredRelease(it, Limits(ir=None, opsets={"ai.onnx": 20})) for it in implementations]
    return find_suggestions(SupportGapGroup(gap, (node.operation,), (node,)), model, releases)


def test_other_opsets_are_matched_with_the_inputs_of_the_node() -> None:
    """An older version of the operator with the same condition does not help."""
    rows = [("Squeeze", make_kernel(13)), ("Squeeze", ConditionRow(13, ("axes: dynamic",), 1))]
    text = "g (float[1, N] x, int64[1] a) => (float[N] y) { y = Squeeze (x, a) }"

    assert (NodeChange((FeatureChange("constant", "axes"),)),) == suggest(text, make_implementation(*rows))


def test_an_operator_is_not_replaced_by_its_function_body() -> None:
    """An engine with conditions can refuse nodes because of their neighbors."""
    builder = harvest.TableBuilder()
    constraints = builder.constraints({"T": ["tensor(float)"]})
    kernels = [(name, version) for name in ("Abs", "Constant", "Add", "Div", "CastLike") for version in (13, 14, 15)]
    for name, version in (*kernels, ("Softsign", 1)):
        limited = constraints if name == "Softsign" else ()
        builder.add(("ai.onnx", name), KernelRow(version, version, "CPUExecutionProvider", limited, 1))
    source = TableSource(release="0.23.9", wheel="tract.whl", sha256="0")
    implementation = build_implementations(builder.table("tract", "linux x86_64", (source,)), {})["0.23.9"]

    assert () == suggest("g (float16[N] x) => (float16[N] y) { y = Softsign (x) }", implementation)


def test_a_release_works_if_it_accepts_the_inputs() -> None:
    """A release that refuses an input is not one since which the model loads."""
    (node,) = read(UNSQUEEZE_BY_INPUT).nodes
    releases = [refuse("Unsqueeze", 13, ("axes: dynamic",)), make_implementation(("Unsqueeze", make_kernel(13)))]
    releases[0].release, releases[1].release = "0.23.1", "0.23.2"

    assert ("0.23.2", "") == find_implemented_span([node.operation], releases, [node])
