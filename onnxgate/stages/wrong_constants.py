"""Find the constant inputs because of which a node cannot be computed, if they explain a failed or crashed run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import Place
from onnxgate.core.process_pool import FailedCallError
from onnxgate.diagnostics import classification
from onnxgate.evidence.runtime import Attempt, WrongConstant
from onnxgate.model.onnx_functions import ignore_error
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import describe_nodes
from onnxgate.support.matching.onnxruntime.kernel_restrictions import DIVISION_SIGNAL
from onnxgate.support.matching.type_inference import infer_model_types

if TYPE_CHECKING:
    from onnx import NodeProto

    from onnxgate.support.matching.operations import TypedModel, TypedNode

FindSourceLine = Callable[["NodeProto"], Place | None]
"""Function that returns the line of source code that created a node; None if it is unknown."""


def add_wrong_constants(
    attempts: Mapping[str, list[Attempt]], model: ModelView, find_line: FindSourceLine
) -> dict[str, list[Attempt]]:
    """Add to each failed or crashed run the constant inputs because of which a node cannot be computed."""
    every = list(itertools.chain.from_iterable(attempts.values()))
    failures = (it.refusal.failure for it in every if it.outcome == "run-refused")
    texts = {failure.text for failure in failures if failure is not None}
    running = {text: found for text in texts if (found := classification.find_running_node(text)) is not None}
    if not running and not any(map(_ends_at_division, every)):
        return dict(attempts)
    try:
        typed = infer_model_types(model)
    except FailedCallError as error:  # the runs have failed in any case; only an explanation is missing
        ignore_error(error)
        return dict(attempts)
    traits = [node.operation.traits for node in typed.kinds]
    if not any(it.constant_fault or it.divisor == "zero" for it in traits):
        return dict(attempts)
    wrong = {text: _find_failed_node(typed, *found, find_line) for text, found in running.items()}
    division = _find_division(typed, find_line)

    def add(attempt: Attempt) -> Attempt:
        if _ends_at_division(attempt):
            return msgspec.structs.replace(attempt, end=msgspec.structs.replace(attempt.end, wrong_constant=division))
        text = attempt.refusal.failure.text if attempt.refusal.failure is not None else ""
        if attempt.outcome != "run-refused" or wrong.get(text) is None:
            return attempt
        refusal = msgspec.structs.replace(attempt.refusal, wrong_constant=wrong[text])
        return msgspec.structs.replace(attempt, refusal=refusal)

    return {runtime: [*map(add, own)] for runtime, own in attempts.items()}


def _ends_at_division(attempt: Attempt) -> bool:
    return attempt.outcome == "crashed" and attempt.end.signal == DIVISION_SIGNAL


def _find_failed_node(typed: TypedModel, operator: str, name: str, find_line: FindSourceLine) -> WrongConstant | None:
    """Return the node with wrong constants that failed; None if another node may have failed.

    Nodes in branches may not have run, so that the name must distinguish them from nodes with valid constants. The
    runtime puts a prefix before the names of nodes in local functions.
    """
    nodes = [
        node
        for node in typed.all_nodes()
        if node.operation.name == operator and (name in ("", node.name) or (node.within and name.endswith(node.name)))
    ]
    faulty = [node for node in nodes if node.operation.traits.constant_fault]
    certain = faulty if len(faulty) == len(nodes) else [node for node in faulty if node in typed.nodes]
    if not certain:
        return None
    return _describe_node(certain[0], certain[0].operation.traits.constant_fault, find_line)


def _find_division(typed: TypedModel, find_line: FindSourceLine) -> WrongConstant | None:
    """Return a node that divides by a constant 0, preferably one of the main graph; None if no node can do so.

    It is the cause if all other nodes that may divide by 0 divide by a constant 0 as well, in the main graph, so that
    they run with all inputs. Nodes whose dividend may have no elements may not divide.
    """
    nodes = [it for it in typed.all_nodes() if it.operation.traits.divisor and _has_elements(it) is not False]
    wrong = [node for node in nodes if node.operation.traits.divisor == "zero"]
    if not wrong:
        return None
    always = [node for node in wrong if node.operation.traits.divides_by_zero and node in typed.nodes]
    dividing = next(filter(_has_elements, always), always[0] if len(always) == 1 else None)
    chosen = dividing or next(iter(always), wrong[0])
    described = _describe_node(chosen, "integers are divided by a constant 0", find_line)
    return msgspec.structs.replace(described, is_certain=dividing is not None and len(always) == len(nodes))


def _has_elements(node: TypedNode) -> bool | None:
    """Return whether the first input of a node has elements; None if this is unknown."""
    value_type = node.type_of(node.proto.input[0])
    if value_type is None or not value_type.tensor_type.HasField("shape"):
        return None
    dims = value_type.tensor_type.shape.dim
    if any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in dims):
        return False
    return True if all(dim.dim_value > 0 for dim in dims) else None


def _describe_node(node: TypedNode, fault: str, find_line: FindSourceLine) -> WrongConstant:
    output = next(filter(None, node.proto.output), "")
    return WrongConstant(
        operator=node.operation.name,
        words=describe_nodes(node.name, output, function=node.within),
        fault=fault,
        node=node.name,
        place=find_line(node.proto),
    )
