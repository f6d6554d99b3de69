"""Calls of local functions: their expanded size, recursion, and inlining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from onnxgate.core.process_pool import FailedCallError
from onnxgate.model import onnx_functions
from onnxgate.model.onnx_functions import OnnxError, ignore_error
from onnxgate.model.reading.view import GraphView, ModelView, OperatorKey
from onnxgate.model.subgraphs.reduced_models import function_key

MAX_FUNCTION_NODES = 100_000
"""Maximum number of nodes of a model with all function calls inlined. In larger models, calls are not followed."""
MAX_CALL_DEPTH = 64
"""Maximum nesting depth of function calls that are followed."""
RECURSION_MESSAGE = "calls itself, directly or through other functions"


class CallSize(msgspec.Struct, frozen=True):
    """Number of nodes to which a function call expands when it is inlined, and the depth of its nested calls."""

    nodes: int  # at most `MAX_FUNCTION_NODES` + 1
    depth: int


def measure_calls(model: ModelView) -> dict[OperatorKey, CallSize]:
    """Return the expanded size of each local function, in linear time. Recursive functions are omitted."""
    functions = {function_key(function.proto): function for function in model.functions}
    sizes: dict[OperatorKey, int] = {}
    callees: dict[OperatorKey, Counter[OperatorKey]] = {}
    for key, function in functions.items():
        calls = [node.operator for node in function.all_nodes()]
        sizes[key], callees[key] = len(calls), Counter(called for called in calls if called in functions)
    return _measure_bottom_up(sizes, callees)


def _measure_bottom_up(
    sizes: Mapping[OperatorKey, int], callees: Mapping[OperatorKey, Counter[OperatorKey]]
) -> dict[OperatorKey, CallSize]:
    """Compute the expanded size of each function from its callees; skip recursive functions and their callers."""
    callers: dict[OperatorKey, list[OperatorKey]] = {key: [] for key in sizes}
    waiting = {key: len(called) for key, called in callees.items()}
    for key, called in callees.items():
        for callee in called:
            callers[callee].append(key)
    ready = [key for key, count in waiting.items() if not count]
    call_sizes: dict[OperatorKey, CallSize] = {}
    while ready:
        key = ready.pop()
        inner = sum(count * call_sizes[callee].nodes for callee, count in callees[key].items())
        depth = 1 + max((call_sizes[callee].depth for callee in callees[key]), default=0)
        call_sizes[key] = CallSize(min(sizes[key] + inner, MAX_FUNCTION_NODES + 1), depth)
        for caller in callers[key]:
            waiting[caller] -= 1
            if not waiting[caller]:
                ready.append(caller)
    return call_sizes


def find_recursive_functions(model: ModelView, call_sizes: Mapping[OperatorKey, CallSize]) -> tuple[OperatorKey, ...]:
    """Return the sorted keys of the local functions that call themselves, even indirectly, and of their callers."""
    return tuple(sorted({function_key(function.proto) for function in model.functions} - call_sizes.keys()))


def explain_unfollowed_calls(model: ModelView) -> str:
    """Return the reason why a model's calls to local functions are not followed; "" if they are followed."""
    if not model.functions:
        return ""
    call_sizes = measure_calls(model)
    if unending := find_recursive_functions(model, call_sizes):
        return f"its local function `{format_function_key(unending[0])}` {RECURSION_MESSAGE}"
    if any(called.depth > MAX_CALL_DEPTH for called in call_sizes.values()):
        return f"calls to its local functions are nested more than {MAX_CALL_DEPTH} levels deep"
    calls = (node.operator for graph in model.graphs for node in graph.nodes)
    if sum(call_sizes[key].nodes for key in calls if key in call_sizes) > MAX_FUNCTION_NODES:
        return f"its local functions expand to more than {MAX_FUNCTION_NODES:,} nodes"
    return ""


def inline_local_functions(model: ModelView) -> ModelView:
    """Return a model without local functions; the model itself if it has none or if their calls are not followed."""
    if not model.functions or explain_unfollowed_calls(model):
        return model
    try:
        return ModelView(onnx_functions.inline_local_functions(model.proto))
    except (OnnxError, FailedCallError) as error:  # an invalid call
        ignore_error(error)
        return model


def format_function_key(key: OperatorKey) -> str:
    """Format the name of a local function for messages."""
    domain, name, overload = key
    return f"{domain}.{name}" + (f":{overload}" if overload else "")


def list_called_functions(view: ModelView) -> list[GraphView]:
    """Return the local functions that the main graph calls, directly or through other functions."""
    if not view.functions:
        return []
    functions = {function_key(function.proto): function for function in view.functions}
    called: dict[OperatorKey, GraphView] = {}
    ahead = [node.operator for graph in view.graphs for node in graph.nodes]
    while ahead:
        key = ahead.pop()
        if key in functions and key not in called:
            called[key] = functions[key]
            ahead += [node.operator for node in functions[key].all_nodes()]
    return list(called.values())
