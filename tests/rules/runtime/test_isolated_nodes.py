"""What is said of a refused model whose nodes were loaded alone, beside what was predicted of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from onnxgate import rules
from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure
from onnxgate.evidence.runtime import Attempt, AttemptCase, Interruption, IsolatedNode, ModelRuns, Refusal
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.gate.results import resolution

PLACE, LINE = Place("onnxgate.lock", 7), Place("export/model.py", 12)
RUNTIME = "onnxruntime 1.16.3"
NO_DET = Failure(type="NotImplemented", text="Could not find an implementation for Det(11) node with name ''")
SHAPES = Failure(type="Fail", text="Node () Op (Range) [ShapeInferenceError] Input to 'Range' op should be scalars")


def predicted(operator: str) -> RefusedOperation:
    """A node that is predicted to be refused."""
    return RefusedOperation(
        "missing-kernel",
        "m.onnx",
        PLACE,
        RUNTIME,
        f"no kernel for {operator}",
        "",
        operator,
        NodeGroup("", "the node that makes `y`"),
    )


def attempt(level: str, failure: Failure | None, family: str) -> Attempt:
    """The model at one level."""
    outcome = "completed" if failure is None else "load-refused"
    return Attempt(optimization=level, outcome=outcome, refusal=Refusal(failure=failure, family=family))  # type: ignore[arg-type]


def alone(operator: str, outcome: str, *explains: str, rule: str = "missing-kernel") -> IsolatedNode:
    """A node, and what became of it."""
    return IsolatedNode(
        operator=operator,
        words=f"node `{operator.lower()}`",
        outcome=outcome,  # type: ignore[arg-type]
        node=operator.lower(),
        place=LINE,
        rule=rule,
        claim=f"no kernel for {operator}" if rule else "",
        explains=explains,
        refusal=Refusal(failure=NO_DET, family="no_kernel") if outcome == "refused" else Refusal(),
    )


def said(subjects: Sequence[object]) -> list[tuple[str, str, bool]]:
    """Return rule, message without runtimes, and whether an observation confirms it."""
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules(subjects, rules.ALL, {}))), [RUNTIME]
    )
    return [(each.rule, re.split(r"; | \(onnxruntime", each.message)[0], each.confirmed) for each in findings]


def runs(*attempts: Attempt, alone: Sequence[IsolatedNode] = ()) -> ModelRuns:
    """The model on its runtime."""
    return ModelRuns(
        model="m.onnx",
        place=PLACE,
        runtime=RUNTIME,
        attempts=attempts,
        predicted=("missing-kernel",),
        alone=tuple(alone),
    )


BOTH = attempt("all", NO_DET, "no_kernel"), attempt("disabled", NO_DET, "no_kernel")


def test_a_refusal_that_a_node_explains_is_not_said_twice() -> None:
    """The nodes that are refused, too, are confirmed with it."""
    nodes = [alone("Det", "refused", "all", "disabled"), alone("Conv", "refused")]

    assert [
        ("missing-kernel", "no kernel for Conv: the node that makes `y`", True),
        ("missing-kernel", "no kernel for Det: the node that makes `y`", True),
    ] == said([predicted("Det"), predicted("Conv"), runs(*BOTH, alone=nodes)])


def test_a_refusal_that_no_node_explains_is_said() -> None:
    """Though the same rule predicts something of another node, which is confirmed alone."""
    shapes = attempt("all", SHAPES, "shape_inference"), attempt("disabled", SHAPES, "shape_inference")
    kernel = runs(*BOTH, alone=[alone("Conv", "refused")])

    for each in (runs(*shapes, alone=[alone("Conv", "refused")]), kernel):
        assert [
            ("load-failed", "does not load", False),
            ("missing-kernel", "no kernel for Conv: the node that makes `y`", True),
        ] == said([predicted("Conv"), each])


def test_each_level_is_explained_by_itself() -> None:
    """What is refused at another level for something else is said, with the level."""
    both = attempt("all", SHAPES, "shape_inference"), attempt("disabled", NO_DET, "no_kernel")
    model = runs(*both, alone=[alone("Det", "refused", "disabled")])
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules([predicted("Det"), model], rules.ALL, {}))), [RUNTIME]
    )

    assert [("load-failed", False), ("missing-kernel", True)] == [(each.rule, each.confirmed) for each in findings]
    assert findings[0].message.endswith("should be scalars` with optimization `all`")


def test_nodes_that_nobody_predicted_are_said_in_place_of_the_model() -> None:
    """Each on its line; what the model stops at is not said a second time."""
    nodes = [alone("Det", "refused", "all", "disabled", rule=""), alone("Conv", "refused", rule="")]
    nodes.append(alone("Mul", "unknown", rule=""))
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules([runs(*BOTH, alone=nodes)], rules.ALL, {}))), [RUNTIME]
    )

    assert [("Conv", LINE), ("Det", LINE)] == [
        (each.message.partition("`")[2].partition("`")[0], Place(each.place.path, each.place.line)) for each in findings
    ]
    assert {"load-failed"} == {each.rule for each in findings}


def test_a_node_that_loads_takes_its_prediction_with_it() -> None:
    """And no other one."""
    nodes = [alone("Det", "refused", "all", "disabled"), alone("Conv", "loads"), alone("Mul", "unknown")]

    assert [
        ("missing-kernel", "no kernel for Det: the node that makes `y`", True),
        ("missing-kernel", "no kernel for Mul: the node that makes `y`", False),
        ("prediction-contradicted", CONTRADICTED, False),
    ] == said([predicted("Det"), predicted("Conv"), predicted("Mul"), runs(*BOTH, alone=nodes)])


CONTRADICTED = "`Conv` loads alone, although `missing-kernel` predicted that it would not: node `conv`"


def test_a_model_that_loads_and_then_crashes_was_not_refused() -> None:
    """What was predicted is wrong all the same; it is another fault that is seen."""
    crashed = Attempt(
        optimization="all",
        outcome="crashed",
        case=AttemptCase(name="sizes batch=1"),
        end=Interruption(signal="SIGSEGV", during="case"),
    )
    found = said([predicted("Conv"), runs(crashed)])

    assert ["runtime-crashed", "prediction-contradicted"] == [rule for rule, _, _ in found]
