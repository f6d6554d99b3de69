"""Faults in local functions and subgraphs that `onnx.checker` does not report, or not for the model as it is written.

Source: 102 models of local functions in six domains, used or not, and 17 of subgraphs, loaded on 7 releases of ONNX
Runtime from 1.16.3 to 1.32.0, all of which refuse these; 23 of them loaded on two releases of ONNX Runtime Web, which
refuse them, and on all releases of OpenVINO and tract in `support/data`, which ignore functions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from onnxgate.core.text import pluralize
from onnxgate.model.facts import CONTRIB_DOMAIN, DEFAULT_DOMAIN, model_domain
from onnxgate.model.local_functions import format_function_key, list_called_functions
from onnxgate.model.reading.view import GraphView, ModelView, NodeView
from onnxgate.model.subgraphs.reduced_models import function_key

_RUNTIME_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms")
"""Prefixes of domains that runtimes define operators of, which may replace local functions."""


_OTHER_ENGINES = ("openvino", "tract")


class InnerFault(msgspec.Struct, frozen=True):
    """A fault in a local function or subgraph."""

    message: str
    node: str = ""  # affected node, if any
    accepted_by: tuple[str, ...] = ()  # engines whose known releases all load the model anyway


def find_inner_faults(view: ModelView) -> Iterator[InnerFault]:
    """Yield each fault in local functions and subgraphs."""
    called = list_called_functions(view)
    followed = set(called)
    for function in view.functions:
        is_called = function in followed
        if message := _check_function(function) or ("" if is_called else _check_unused_function(function)):
            yield InnerFault(message, accepted_by=() if is_called else _OTHER_ENGINES)
    if view.functions:
        functions = {function_key(function.proto): function for function in view.functions}
        for node in (node for scope in (*view.graphs, *called) for node in _iter_nodes(scope)):
            if node.operator in functions and not node.operator[0].startswith(_RUNTIME_DOMAINS):
                message = _check_call(node, functions[node.operator])
                if message:
                    yield InnerFault(f"local function `{format_function_key(node.operator)}` {message}", node.name)
    if view.spells_default_domain:
        for scope in (*view.graphs[1:], *called):
            for node in _iter_nodes(scope):
                if node.proto.domain == DEFAULT_DOMAIN:
                    where = "subgraphs and local functions"
                    message = f"`{node.operator[1]}` has the domain `{DEFAULT_DOMAIN}`, which must be empty in {where}"
                    yield InnerFault(message, accepted_by=() if scope in followed else ("tract",))


def _iter_nodes(scope: GraphView) -> Iterator[NodeView]:
    """Yield the nodes of a scope; subgraphs of the model are scopes of their own, those of functions are not."""
    return scope.all_nodes() if hasattr(scope.proto, "opset_import") else iter(scope.nodes)


def _check_function(function: GraphView) -> str:
    """Return why runtimes refuse a function even if it is not called; "" if they accept it."""
    called = f"local function `{format_function_key(function_key(function.proto))}`"
    made = {name for node in function.nodes for name in node.outputs}
    if "" in (*function.proto.input, *function.proto.output):
        return f"its {called} has an input or output without a name"
    if missing := next((name for name in function.proto.output if name not in made), None):
        return f"its {called} has the output `{missing}`, which no node of it computes"
    imported = {opset.domain for opset in function.proto.opset_import}
    for node in function.all_nodes():
        domain = node.proto.domain
        if node.operator[0] == DEFAULT_DOMAIN and domain not in imported and imported & _SPELLINGS:
            own, other = ("the domain `ai.onnx`", "an empty one") if domain else ("an empty domain", "`ai.onnx`")
            return f"`{node.operator[1]}` in its {called} has {own}, but the function imports {other}"
    return ""


def _check_unused_function(function: GraphView) -> str:
    """Return why runtimes refuse a function that is not called; the nodes of others are matched with a release.

    onnx's checker reports the other domains. Source: 30 such functions, loaded on the 6 releases named above.
    """
    imported = {opset.domain for opset in function.proto.opset_import}
    for node in function.all_nodes() if CONTRIB_DOMAIN not in imported else ():
        if node.operator[0] == CONTRIB_DOMAIN:
            called = f"local function `{format_function_key(function_key(function.proto))}`"
            return f"its {called} uses `{CONTRIB_DOMAIN}.{node.operator[1]}`, but does not import the domain"
    return ""


_SPELLINGS = {DEFAULT_DOMAIN, model_domain(DEFAULT_DOMAIN)}


def _check_call(node: NodeView, function: GraphView) -> str:
    """Return why runtimes refuse the call of a function; "" if they accept it."""
    for side, names, formals in (
        ("input", node.inputs, function.proto.input),
        ("output", node.outputs, function.proto.output),
    ):
        if len(names) > len(formals):
            return f"has {pluralize(len(formals), side)}, but is called with {len(names)}"
    return ""
