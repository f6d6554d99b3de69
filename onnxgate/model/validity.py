"""Checks whether a model is valid: `onnx.checker` on a copy of the model without weights, and additional checks."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.model import onnx_functions
from onnxgate.model.captured_values import declares_captures, find_contradicted_capture, list_sizes, may_be_equal
from onnxgate.model.constant_folding import (
    can_fold,
    folds_nodes,
    has_unknown_operators,
    infer_folded_shapes,
    inline_functions,
    remove_unknown_operators,
    without_declared_shapes,
)
from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, canonical_domain, element_name, wrap_opset
from onnxgate.model.inner_scopes import find_inner_faults
from onnxgate.model.local_functions import (
    RECURSION_MESSAGE,
    explain_unfollowed_calls,
    find_recursive_functions,
    format_function_key,
    list_called_functions,
    measure_calls,
)
from onnxgate.model.onnx_functions import OnnxError
from onnxgate.model.reading.omitted_texts import find_home_paths
from onnxgate.model.reading.view import GraphView, ModelView
from onnxgate.model.subgraphs.reduced_models import (
    add_missing_shapes,
    copy_for_checker,
    function_key,
    kind_without_shape,
    list_needed_values,
    list_unused_weights,
    needs_copy_for_checker,
    remove_accepted_violations,
    replace_sparse_tensors,
    weights_to_inputs,
)
from onnxgate.model.tensor_size import check_tensor_size, has_right_raw_data

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto, TypeProto


_FIRST_IR_WITH_OPSETS = 3
_NODE_PATTERNS = (
    r"Bad node spec for node\. Name: (.*) OpType: ",
    r"of node: \s*[nN]ame: (.*) OpType: ",
    r"node name: (.*?)\)",
)
_INFERENCE_PREFIX = r"\[(?:Shape|Type)InferenceError\] (?:Inference error\(s\): )?"
_HARMLESS_PATTERN = r"Inferred shape and existing shape differ in (?:rank|dimension)"
_CONTRADICTION = re.compile(_HARMLESS_PATTERN.replace("dimension", r"dimension \d+: \(\d+\) vs \(\d+\)"))
_SUBGRAPH_PATTERN = r"\(op_type:(?:Loop|Scan|SequenceMap)\b"
"""Operators that pass values to inputs of subgraphs whose declared shapes must fit, unlike those of outputs.

Source: models with each combination of shapes, loaded on 5 releases of ONNX Runtime from 1.16.3 to 1.31.1.
"""
_TOPIC_PATTERNS = {
    "operator": r"No Op registered for ",
    "domain": r"No opset import for domain",
    "deprecated": r"is deprecated in domain_version",
    "attribute": r"Unrecognized attribute: |Required attribute .* is missing|Mismatched attribute type",
    "arguments": r"has (?:in|out)put size \d+ not in range",
    "type": r"has inconsistent type |has unsupported type: ",
}
"""Patterns of messages from onnx about faults that runtimes also report, keyed by topic. Source: onnx 1.16–1.23."""
_CONTEXT = "\n\n==> Context:"
_REPEATED = "appeared multiple times"
"""Error message from onnx about two attributes of one name."""
_UNKNOWN_TYPE = re.compile(
    r"\b(?:instead is|is|was) null\b|\bwas unknown\b|Mismatched type: inferred=(?:0|\d+ declared=0)\b|was not a tensor"
    r"|expected to have (?:\w+ or )?(?:tensor|sequence|optional)|'body' subgraph (?:scan )?outputs should all be "
)
"""Error messages from onnx that a value without a known type causes, besides other causes.

Source: errors of onnx 1.23 in about 2,000 valid models with operators of `com.microsoft`, and its similar messages.
"""
_MISSING_DATA_MESSAGE = "Cannot parse data from external tensors"
"""Error message from onnx if shape inference needs data that the copy does not have. It is not a fault of the model."""
_OTHER_ENGINES = ("openvino", "tract")
"""Engines that load models without values, and models with two nodes of one name.

Source: such models, loaded on all releases of the two engines in `support/data` (names: on the oldest and newest).
ONNX Runtime 1.16.3–1.32.0 and ONNX Runtime Web refuse them.
"""
_ONNX_ERRORS = (OnnxError, RuntimeError, ValueError, IndexError, OverflowError)


class ModelFault(msgspec.Struct, frozen=True):
    """A fault that makes a model invalid."""

    message: str
    node: str = ""  # affected node, if any
    harmless: bool = False  # all known runtimes load the model anyway
    about: str = ""  # a key of `_TOPIC_PATTERNS`, or "input shape", "output shape", "accepted"
    accepted_by: tuple[str, ...] = ()  # engines or minor releases ("onnxruntime 1.16") that load the model anyway


def is_shape_contradiction(fault: ModelFault | None) -> bool:
    """Return whether a declared shape differs from the inferred one, with a fixed size in both."""
    return fault is not None and _CONTRADICTION.match(fault.message) is not None


class CheckedModel(msgspec.Struct, frozen=True):
    """A model with its first fault (None if the model is valid) and the types that onnx inferred."""

    view: ModelView
    fault: ModelFault | None
    unchecked: str = ""  # reason why the installed onnx could not check the model
    inferred: ModelProto | None = None  # None if a check failed, did not run or used a modified copy


def find_fault(model: ModelView, path: Path) -> ModelFault | None:
    """Return the first fault in the model at `path`, or None if the model is valid. See `check_model`."""
    return check_model(model, path).fault


def check_model(model: ModelView, path: Path) -> CheckedModel:
    """Check the model at `path` and infer the types of its values.

    If the installed onnx does not support the model, only the additional checks run.

    Raises:
        OSError, UnreadableModel: omitted data cannot be read from the file.
    """
    own, unchecked = find_own_fault(model, path), explain_unchecked(model)
    if (own and _rank_fault(own) == (False, False)) or unchecked:
        return CheckedModel(model, own, unchecked)
    copy = copy_for_checker(model.proto, path) if needs_copy_for_checker(model) else model.proto
    fault, inferred = _run_checker(model, copy)
    if copy is not model.proto or model.has_sparse_tensors:
        inferred = None  # types of changed parts may differ
    if fault is not None and (accepted := remove_accepted_violations(copy)) is not None:
        fault = _run_checker(model, accepted)[0] or msgspec.structs.replace(fault, harmless=True, about="accepted")
    is_repeated = fault is not None and not fault.harmless and _REPEATED in fault.message
    if fault is not None and is_repeated and (accepted := remove_accepted_violations(copy, in_1_17=True)) is not None:
        other = _run_checker(model, accepted)[0]
        if other is None or other.harmless:
            fault = msgspec.structs.replace(fault, accepted_by=("onnxruntime 1.16", "onnxruntime 1.17"))
    if fault is None or fault.harmless:
        captured = _find_contradicted_capture(copy) if declares_captures(model) else None
        fault = own or captured or fault or _find_missing_shape(model.proto.graph)
    return CheckedModel(model, fault, "", inferred)


def find_own_fault(model: ModelView, path: Path) -> ModelFault | None:
    """Return the first fault that onnx does not find. A fault that more runtimes refuse takes precedence."""
    worst: ModelFault | None = None
    for fault in _iter_own_faults(model, path):
        if _rank_fault(fault) == (False, False):
            return fault
        worst = min(worst or fault, fault, key=_rank_fault)
    return worst


def _rank_fault(fault: ModelFault) -> tuple[bool, bool]:
    return fault.harmless, bool(fault.accepted_by)


def _find_missing_shape(graph: GraphProto) -> ModelFault | None:
    for role, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if kind_without_shape(value):
                message = f"{role} `{value.name}` has no shape (unknown rank)"
                return ModelFault(message, harmless=True, about=f"{role} shape")
    return None


def _iter_own_faults(view: ModelView, path: Path) -> Iterator[ModelFault]:
    model = view.proto
    if not model.HasField("graph"):
        yield ModelFault("it has no graph")
    if not model.HasField("ir_version"):
        yield ModelFault("it has no IR version")
    if not model.opset_import and model.ir_version >= _FIRST_IR_WITH_OPSETS:
        yield ModelFault("it does not import any opset")
    for imported in (it for holder in (model, *model.functions) for it in holder.opset_import):
        if wrap_opset(imported.version) != imported.version:
            domain = canonical_domain(imported.domain)
            yield ModelFault(f"it imports opset {imported.version} of `{domain}`, which exceeds 32 bits")
    for key in find_recursive_functions(view, measure_calls(view)):
        yield ModelFault(f"its local function `{format_function_key(key)}` {RECURSION_MESSAGE}")
    if not model.graph.output and not _computes_values(view.graphs[0]):
        yield ModelFault("it has neither outputs nor nodes that compute values", accepted_by=_OTHER_ENGINES)
    if view.functions or view.spells_default_domain:
        for inner in find_inner_faults(view):
            yield ModelFault(inner.message, inner.node, accepted_by=inner.accepted_by)
    for graph in view.graphs:
        yield from _find_missing_element_types(graph) if view.has_unusual_types else ()
        for name in _find_repeated(_list_node_names(graph)):
            yield ModelFault(f"two nodes are named `{name}`", name, accepted_by=_OTHER_ENGINES)
        yield from _find_repeated_weights(graph.proto, is_main=graph is view.graphs[0])
    yield from _find_contradicted_initializers(model.graph)
    for function in list_called_functions(view):
        for name in _find_repeated(_list_node_names(function)):
            called = format_function_key(function_key(function.proto))
            yield ModelFault(f"two nodes of its local function `{called}` are named `{name}`", name)
    for name, tensor in view.tensors:
        is_right = not view.declared and has_right_raw_data(tensor)  # fast path for most tensors
        if not is_right and (wrong := check_tensor_size(tensor, path)):
            is_unused = bool(tensor.name) and tensor.name in list_unused_weights(view.proto.graph)
            accepted = is_unused or _is_unused_constant(view, tensor)
            yield ModelFault(f"tensor `{name}` {wrong}", harmless=accepted, about="accepted" if accepted else "")


def _find_repeated_weights(graph: GraphProto, *, is_main: bool) -> Iterator[ModelFault]:
    """Yield a fault for each name of several initializers. Sparse ones follow dense ones.

    In the main graph, ONNX Runtime compares the last one of a name with the input of this name; if there is no such
    input, with the first one. Source: 330 models with inputs, initializers and sparse ones of one name, loaded on 6
    releases from 1.16.3 to 1.32.0.
    """
    names = [tensor.name for tensor in graph.initializer]
    names += [sparse.values.name for sparse in graph.sparse_initializer]
    repeated = list(_find_repeated(names))
    first: dict[str, tuple[int, ...]] = {}
    last: dict[str, tuple[int, ...]] = {}
    for name, element, dims in _iter_weights(graph, set(repeated)) if repeated else ():
        last[name] = (element, *dims)
        first.setdefault(name, last[name])
    inputs = {value.name for value in graph.input} if is_main and repeated else ()
    for name in repeated:
        is_equal = first[name] == last[name] or name in inputs
        accepted = is_main and is_equal
        message = f"two initializers are named `{name}`" + ("" if is_equal else " and have different types")
        yield ModelFault(message, harmless=accepted, about="accepted" if accepted else "")


def _iter_weights(graph: GraphProto, names: Container[str]) -> Iterator[tuple[str, int, Sequence[int]]]:
    """Yield the name, element type and dims of each initializer with one of these names; sparse ones come last."""
    for tensor in graph.initializer:
        if tensor.name in names:
            yield tensor.name, tensor.data_type, tensor.dims
    for sparse in graph.sparse_initializer:
        if sparse.values.name in names:
            yield sparse.values.name, sparse.values.data_type, sparse.dims


def _computes_values(graph: GraphView) -> bool:
    """Return whether ONNX Runtime keeps a value of a graph without outputs; it refuses graphs without values.

    Source: 13 such graphs, loaded on 7 releases from 1.16.3 to 1.32.0.
    """
    has_inputs = bool(graph.proto.input)
    return any(has_inputs or node.operator[1] != "Constant" for node in graph.nodes)


def _is_unused_constant(view: ModelView, tensor: TensorProto) -> bool:
    """Return whether a tensor is the value of a `Constant` node whose output is not used.

    Source: `Constant` nodes with too many or too few values, loaded on ONNX Runtime 1.16 to 1.31.
    """
    for scope in view.scopes:
        for node in scope.nodes:
            if node.operator[1] == "Constant" and any(it.HasField("t") and it.t is tensor for it in node.attributes):
                needed = {name for user in scope.proto.node for name in list_needed_values(user)}
                outputs = {getattr(output, "name", output) for output in scope.proto.output}  # names in a function
                return not (needed | outputs).intersection(node.outputs)
    return False


def _list_node_names(graph: GraphView) -> list[str]:
    """Return the names of nodes that must be unique. Runtimes turn `Constant` nodes into initializers."""
    return [node.name for node in graph.nodes if node.name and node.operator[1] != "Constant"]


def _find_missing_element_types(view: GraphView) -> Iterator[ModelFault]:
    """Yield a fault for each value without a known element type, which `onnx.checker` does not report.

    Source: ONNX Runtime 1.16 to 1.32 refuses such models, also if the value is an input or initializer without use. It
    ignores the types of constants, and of values that no node computes or that are also outputs.
    """
    graph = view.proto
    constants = {name for node in view.nodes if node.operator[1] == "Constant" for name in node.outputs}
    computed = {name for node in view.nodes for name in node.outputs}.difference(value.name for value in graph.output)
    for tensor in graph.initializer:
        if tensor.data_type not in ELEMENT_TYPES:
            yield ModelFault(f"initializer `{tensor.name}` has the unknown element type {tensor.data_type}")
    for role, values in (("input", graph.input), ("output", graph.output), ("value", graph.value_info)):
        for value in values:
            value_type = value.type
            element = value_type.tensor_type.elem_type
            if element in ELEMENT_TYPES:
                continue
            is_ignored = value.name in constants or (role == "value" and value.name not in computed)
            if element and not (role == "value" and is_ignored):
                yield ModelFault(f"{role} `{value.name}` has the unknown element type {element}")
            elif is_ignored:
                continue
            elif not _has_element_type(value_type):
                yield ModelFault(f"the type of {role} `{value.name}` has no element type")


def _has_element_type(value_type: TypeProto) -> bool:
    kind = value_type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(getattr(value_type, kind).elem_type)
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(value_type, kind).elem_type
        return inner.WhichOneof("value") is not None and _has_element_type(inner)
    return True


def _find_contradicted_initializers(graph: GraphProto) -> Iterator[ModelFault]:
    """Yield a fault for each initializer that differs from the input of its name, whether it is used or not.

    Of several initializers of one name, the last one counts. `onnx.checker` does not compare initializers whose data
    are not in the `ModelProto`.
    Source: 60 models with such pairs; ONNX Runtime 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0 refuse them.
    """
    declared = {value.name: value.type.tensor_type for value in graph.input}
    last = {name: (element, dims) for name, element, dims in _iter_weights(graph, declared)} if declared else {}
    for name, (element, dims) in last.items():
        tensor_type = declared[name]
        if tensor_type.elem_type not in (0, element):
            compared = f"but input `{name}` has type tensor({element_name(tensor_type.elem_type)})"
            yield ModelFault(f"initializer `{name}` has type tensor({element_name(element)}), {compared}")
        sizes = list_sizes(tensor_type)
        if tensor_type.HasField("shape") and not may_be_equal(dims, sizes):
            compared = f"but input `{name}` has shape {_format_sizes(sizes)}"
            yield ModelFault(f"initializer `{name}` has shape {_format_sizes(dims)}, {compared}")


def _find_contradicted_capture(copy: ModelProto) -> ModelFault | None:
    """Return a fault for a value that a subgraph uses, but declares with another type or shape."""
    found = find_contradicted_capture(copy)
    if found is None:
        return None
    declared, actual = found.declared, found.actual
    if declared.element and actual.element and declared.element != actual.element:
        words = f"type tensor({element_name(declared.element)}) instead of tensor({element_name(actual.element)})"
    else:
        words = f"shape {_format_sizes(declared.sizes or ())} instead of {_format_sizes(actual.sizes or ())}"
    accepted_by = ("openvino", *(("onnxruntime 1.16",) if found.loads_on_first else ()))
    return ModelFault(f"a subgraph declares `{found.name}` with {words}", accepted_by=accepted_by)


def _format_sizes(sizes: Sequence[int]) -> str:
    return f"({', '.join(str(size) if size >= 0 else '?' for size in sizes)})"


def _find_repeated(names: Sequence[str]) -> Iterator[str]:
    """Yield each name that occurs more than once.

    Source: ONNX Runtime 1.15–1.31 refuses nodes with the same name in one graph or called function, except `Constant`
    nodes. onnx.checker accepts all node names. ONNX Runtime accepts initializers with the same name in the main graph
    if the first and the last have the same type and shape (73 models, loaded on 1.16.3, 1.24.4 and 1.31.1).
    """
    unique: set[str] = set()
    for name in names if len(set(names)) < len(names) else ():
        if name in unique:
            yield name
        unique.add(name)


def find_missing_operators(names: Iterable[str], opset: int) -> list[str]:
    """Return the operators of `ai.onnx` that an opset does not define, so that no conversion to it is possible."""
    from onnx import defs

    return [name for name in names if "." not in name and defs.has(name) and not defs.has(name, opset)]


def supports_opset(opsets: Mapping[str, int]) -> bool:
    """Return whether the installed onnx supports the opset of `ai.onnx`."""
    import onnx

    newest: int = onnx.defs.onnx_opset_version()
    return opsets.get(DEFAULT_DOMAIN, 0) <= newest


def explain_unchecked(view: ModelView) -> str:
    """Explain why the installed onnx cannot check the model; "" if it can."""
    import onnx

    model = view.proto

    newest = {DEFAULT_DOMAIN: onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
    imports = [imported for holder in (model, *model.functions) for imported in holder.opset_import]
    unknown = [f"IR version {model.ir_version}"] if model.ir_version > onnx.IR_VERSION else []
    for imported in imports:
        domain = canonical_domain(imported.domain)
        if imported.version > newest.get(domain, imported.version):
            unknown.append(f"opset {imported.version} of `{domain}`")
    if not unknown and (reason := explain_unfollowed_calls(view)):
        return f"{reason}, so `onnx.checker` was skipped"
    if not unknown:
        return ""
    unsupported = " and ".join(dict.fromkeys(unknown))
    return f"onnx {onnx.__version__} does not support {unsupported}, so `onnx.checker` was skipped"


def _run_checker(view: ModelView, copy: ModelProto) -> tuple[ModelFault | None, ModelProto | None]:
    """Run the two steps of `onnx.checker` with `full_check=True`: the checker, and strict shape inference.

    Missing shapes are added only for the checker, and sparse tensors are replaced only for shape inference.
    """
    content = copy.SerializeToString()
    complete, dense = add_missing_shapes(copy), copy
    if view.has_sparse_tensors:
        dense = replace_sparse_tensors(copy)
        weights_to_inputs(dense.graph)
        view = ModelView(dense)
    fault, inferred = None, None
    is_inferring = False
    try:
        onnx_functions.check_model(content if complete is copy else complete.SerializeToString())
        is_inferring = True
        inferred = _infer_strictly(dense, content if dense is copy else dense.SerializeToString())
    except _ONNX_ERRORS as error:
        fault = _parse_checker_message(str(error))
        if fault is not None and is_inferring:
            fault = _assess_contradictions(view, dense, fault, str(error))
    if fault is None or fault.harmless:
        try:
            _infer_folded_shapes(view, dense, fault, inferred)
        except _ONNX_ERRORS as error:
            folded = _parse_checker_message(str(error))
            if folded is not None and (not folded.harmless or re.search(_SUBGRAPH_PATTERN, str(error))):
                fault = msgspec.structs.replace(folded, harmless=False)
    return fault, inferred


def _assess_contradictions(view: ModelView, model: ModelProto, fault: ModelFault, message: str) -> ModelFault:
    """Decide whether releases refuse a model, given the error of shape inference.

    They do not use a declared shape that contradicts the inferred one, so that errors that follow from it are harmless,
    except in subgraphs of local functions. Until 1.16, an error there is harmless, too, if the output has a known type.
    Source: 52 such models, loaded on 1.16.3, 1.17.3, 1.18.1, 1.20.1, 1.24.4, 1.31.1 and 1.32.0.
    """
    contradictions = [line for line in message.splitlines() if re.search(_HARMLESS_PATTERN, line)]
    if contradictions and _is_valid_without_shapes(model):
        return _parse_checker_message(contradictions[0]) or fault
    names = "|".join(re.escape(function.proto.name) for function in view.functions)
    if not names or re.search(rf"\(op_type:(?:{names})\).*\(op_type:", message) is None:
        return fault
    is_accepted = _declares_results(view) and _is_valid_without_shapes(inline_functions(model))
    return msgspec.structs.replace(fault, harmless=False, accepted_by=("onnxruntime 1.16",) if is_accepted else ())


def _declares_results(view: ModelView) -> bool:
    """Return whether the types of all results of local functions are declared."""
    functions = {function_key(function.proto) for function in view.functions}
    typed = {value.name for it in view.graphs for value in (*it.proto.value_info, *it.proto.output)}
    results = (name for it in view.graphs for node in it.nodes if node.operator in functions for name in node.outputs)
    return typed.issuperset(filter(None, results))


def _is_valid_without_shapes(model: ModelProto) -> bool:
    """Return whether the shapes of a model do not contradict each other without those that the graph declares."""
    known = without_declared_shapes(model)
    try:
        _infer_strictly(known, known.SerializeToString())
    except _ONNX_ERRORS:
        return False
    return True


def _infer_strictly(model: ModelProto, content: bytes) -> ModelProto | None:
    """Infer the types of a model strictly; None if this is possible only without the operators that onnx does not know.

    onnx takes the unknown types of their outputs for errors if they are in subgraphs or local functions. Without the
    nodes that contain such operators, other errors inside of them would not be found.
    """
    try:
        return onnx_functions.infer_shapes(model if model.functions else content, check_type=True, strict_mode=True)
    except _ONNX_ERRORS as error:
        lines = [line for line in str(error).partition(_CONTEXT)[0].splitlines() if line.strip()]
        real = [line for line in lines if not _UNKNOWN_TYPE.search(line)]
        if len(real) == len(lines):
            raise
        known = deepcopy(model)
        if not remove_unknown_operators(known):
            raise
        if real:
            raise OnnxError("\n".join(real)) from error
        onnx_functions.infer_shapes(known, check_type=True, strict_mode=True)
        return None


def _infer_folded_shapes(
    view: ModelView, model: ModelProto, fault: ModelFault | None, inferred: ModelProto | None
) -> None:
    """Infer shapes with folded constants, unless the result would be the same as without."""
    if fault is not None or has_unknown_operators(view) or (can_fold(view) and folds_nodes(view, model, inferred)):
        infer_folded_shapes(model)


def _parse_checker_message(text: str) -> ModelFault | None:
    """Convert an error message from onnx to a fault with a message of one line, without tags and context."""
    if _MISSING_DATA_MESSAGE in text:
        return None
    message = re.sub(_INFERENCE_PREFIX, "", text.partition(_CONTEXT)[0]).strip()
    if "(op_type:" in message:
        lines = message.splitlines()
        harmless = all(re.search(_HARMLESS_PATTERN, line) for line in lines)
        first = next((line for line in lines if not re.search(_HARMLESS_PATTERN, line)), lines[0])
        problem, text, message = first.rpartition("): ")[2], first, first
    else:
        problem, harmless = " ".join(message.split()), False
    node = next((match[1].strip() for pattern in _NODE_PATTERNS if (match := re.search(pattern, text))), "")
    topic = next((topic for topic, pattern in _TOPIC_PATTERNS.items() if re.search(pattern, message)), "")
    return ModelFault(problem, node, harmless, about=topic)


def find_leaked_paths(model: ModelView) -> tuple[str, ...]:
    """Return the sorted paths to home directories that the metadata of a model contains."""
    texts = (it if isinstance(it, str) else it.decode(errors="replace") for it in model.remarks)
    return tuple(sorted({path for text in texts for path in find_home_paths(text)}))
