"""Findings about refused models whose nodes were loaded in isolation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec import structs

from onnxgate import rules
from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure
from onnxgate.diagnostics.classification import failure_family
from onnxgate.evidence.runtime import Attempt, AttemptCase, Interruption, IsolatedNode, ModelRuns, Refusal
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.gate.results import resolution

PLACE, LINE = Place("onnxgate.lock", 7), Place("export/model.py", 12)
RUNTIME = "onnxruntime 1.16.3"
NO_DET = Failure(type="NotImplemented", text="Could not find an implementation for Det(11) node with name ''")
SHAPES = Failure(type="Fail", text="Node () Op (Range) [ShapeInferenceError] Input to 'Range' op should be scalars")


def predicted(operator: str) -> RefusedOperation:
    """Return a node with a predicted refusal."""
    return RefusedOperation(
        "missing-kernel",
        "m.onnx",
        PLACE,
        (RUNTIME,),
        f"no kernel for {operator}",
        "",
        operator,
        NodeGroup("", "the node that makes `y`"),
    )


def attempt(level: str, failure: Failure | None, family: str) -> Attempt:
    """Return a load of the model at one optimization level."""
    outcome = "completed" if failure is None else "load-refused"
    return Attempt(optimization=level, outcome=outcome, refusal=Refusal(failure=failure, family=family))  # type: ignore[arg-type]


def isolated_node(operator: str, outcome: str, *explains: str, rule: str = "missing-kernel") -> IsolatedNode:
    """Return a node with the outcome of loading it alone."""
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


def summarize(subjects: Sequence[object]) -> list[tuple[str, str, bool]]:
    """Return rule, message without runtimes, and whether an observation confirms it."""
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules(subjects, rules.ALL, {}))), [RUNTIME]
    )
    return [
        (finding.rule, re.split(r"; | \(onnxruntime", finding.message)[0], finding.confirmed) for finding in findings
    ]


def runs(*attempts: Attempt, alone: Sequence[IsolatedNode] = ()) -> ModelRuns:
    """Return the runs of the model."""
    return ModelRuns(
        model="m.onnx",
        place=PLACE,
        runtime=RUNTIME,
        attempts=attempts,
        predicted=("missing-kernel",),
        alone=tuple(alone),
    )


BOTH = attempt("all", NO_DET, "no_kernel"), attempt("disabled", NO_DET, "no_kernel")


def test_a_refusal_that_a_node_explains_is_one_finding() -> None:
    """The predictions of refused nodes are confirmed."""
    nodes = [isolated_node("Det", "refused", "all", "disabled"), isolated_node("Conv", "refused")]

    assert [
        ("missing-kernel", "no kernel for Conv: the node that makes `y`", True),
        ("missing-kernel", "no kernel for Det: the node that makes `y`", True),
    ] == summarize([predicted("Det"), predicted("Conv"), runs(*BOTH, alone=nodes)])


def test_an_unexplained_refusal_is_reported() -> None:
    """An unexplained refusal is reported even if the same rule predicts a refusal of another node."""
    shapes = attempt("all", SHAPES, "shape_inference"), attempt("disabled", SHAPES, "shape_inference")
    kernel = runs(*BOTH, alone=[isolated_node("Conv", "refused")])

    for each in (runs(*shapes, alone=[isolated_node("Conv", "refused")]), kernel):
        assert [
            ("load-failed", "does not load", False),
            ("missing-kernel", "no kernel for Conv: the node that makes `y`", True),
        ] == summarize([predicted("Conv"), each])


def test_optimization_levels_are_explained_separately() -> None:
    """A different refusal at another level is reported with that level."""
    both = attempt("all", SHAPES, "shape_inference"), attempt("disabled", NO_DET, "no_kernel")
    model = runs(*both, alone=[isolated_node("Det", "refused", "disabled")])
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules([predicted("Det"), model], rules.ALL, {}))), [RUNTIME]
    )

    assert [("load-failed", False), ("missing-kernel", True)] == [
        (finding.rule, finding.confirmed) for finding in findings
    ]
    assert findings[0].message.endswith("should be scalars` with optimization `all`")


def test_unpredicted_nodes_replace_the_finding_of_the_model() -> None:
    """Each node is reported at its source line, and the model is not reported again."""
    nodes = [isolated_node("Det", "refused", "all", "disabled", rule=""), isolated_node("Conv", "refused", rule="")]
    nodes.append(isolated_node("Mul", "unknown", rule=""))
    findings = resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules([runs(*BOTH, alone=nodes)], rules.ALL, {}))), [RUNTIME]
    )

    assert [("Conv", LINE), ("Det", LINE)] == [
        (finding.message.partition("`")[2].partition("`")[0], Place(finding.place.path, finding.place.line))
        for finding in findings
    ]
    assert {"load-failed"} == {finding.rule for finding in findings}


def test_a_node_that_loads_contradicts_its_prediction() -> None:
    """Predictions about other nodes remain."""
    nodes = [
        isolated_node("Det", "refused", "all", "disabled"),
        isolated_node("Conv", "loads"),
        isolated_node("Mul", "unknown"),
    ]

    assert [
        ("missing-kernel", "no kernel for Det: the node that makes `y`", True),
        ("missing-kernel", "no kernel for Mul: the node that makes `y`", False),
        ("prediction-contradicted", CONTRADICTED, False),
    ] == summarize([predicted("Det"), predicted("Conv"), predicted("Mul"), runs(*BOTH, alone=nodes)])


CONTRADICTED = "`Conv` loads in a single-node model, although `missing-kernel` predicted that it would not: node `conv`"


def test_a_model_that_loads_and_then_crashes_was_not_refused() -> None:
    """A crash is a different fault, so it contradicts the prediction."""
    crashed = Attempt(
        optimization="all",
        outcome="crashed",
        case=AttemptCase(name="sizes batch=1"),
        end=Interruption(signal="SIGSEGV", during="case"),
    )
    actual = summarize([predicted("Conv"), runs(crashed)])

    assert ["runtime-crashed", "prediction-contradicted"] == [rule for rule, _, _ in actual]


def test_prediction_explains_an_error_of_another_node() -> None:
    """A prediction that names a node next to it explains the failure, whatever the family of the error text."""
    attempts = attempt("all", SHAPES, "shape_inference"), attempt("disabled", SHAPES, "shape_inference")
    alone = [isolated_node("Det", "refused", "all", "disabled")]

    assert summarize([predicted("Det"), runs(*attempts, alone=alone)]) == [
        ("missing-kernel", "no kernel for Det: the node that makes `y`", True)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Could not find an implementation for Div(7) node with name 'div'", "is not supported"),
        ("Fatal error: Div is not a registered function/op", "is not supported"),
        ("No opset import for domain 'acme'", "is in a domain that the model does not import"),
        ("Op registered for Div is deprecated in domain_version of 17", "is deprecated at the imported opset"),
        ("Node (div) Op (Div) [ShapeInferenceError] Incompatible dimensions", "fails shape or type inference"),
        ("Node (div) Op (Div) [TypeInferenceError] Input 0 has no type", "fails shape or type inference"),
        (
            "Type Error: Type parameter (T) of Optype (Div) bound to different types (tensor(float) and tensor(double)"
            " in node (div).",
            "has input or output types that the runtime rejects",
        ),
        ("Unrecognized attribute: foo for operator Div", "has attributes that the runtime rejects"),
        ("Required attribute 'to' is missing.", "lacks a required attribute"),
        ("Node (div) has input size 3 not in range [min=2, max=2].", "has too few or too many inputs or outputs"),
        ("Integer division by zero", "is rejected"),
        ("a text that no entry matches", "is rejected"),
    ],
)
def test_only_what_the_runtime_lacks_is_not_supported(text: str, expected: str) -> None:
    """No other release supports a node that contradicts the definition of its operator."""
    family = failure_family(text)
    failure = Failure(type="Fail", text=text)
    refusal = Refusal(failure=failure, family=family)
    alone = structs.replace(isolated_node("Div", "refused", "all", rule=""), refusal=refusal)
    found = summarize([runs(attempt("all", failure, family), alone=[alone])])

    assert found == [("load-failed", f"does not load: `Div` {expected} (node `div`)", False)]
