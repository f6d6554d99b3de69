"""Checks whether a model is valid: `onnx.checker` on a copy of the model without weights, and additional checks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import open_regular
from onnxgate.model.constant_folding import can_fold, infer_folded_shapes
from onnxgate.model.facts import (
    DEFAULT_DOMAIN,
    ELEMENT_TYPES,
    MAX_ELEMENTS,
    STRING,
    canonical_domain,
    count_tensor_elements,
    element_name,
    required_bytes,
)
from onnxgate.model.reading.external_data import is_external
from onnxgate.model.reading.file_format import FileWindow, UnreadableModel
from onnxgate.model.reading.omitted_data import OmittedData, find_omitted_data
from onnxgate.model.reading.structure import DATA_FIELDS, RAW_DATA
from onnxgate.model.reading.view import GraphView, ModelView, OperatorKey
from onnxgate.model.subgraphs.reduced_models import (
    add_missing_shapes,
    copy_for_checker,
    function_key,
    has_data_elsewhere,
    kind_without_shape,
    list_unused_weights,
    needs_copy_for_checker,
    remove_accepted_violations,
    replace_sparse_weights,
)

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
_SUBGRAPH_PATTERN = r"\(op_type:(?:Scan|SequenceMap)\b"
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
_MISSING_DATA_MESSAGE = "Cannot parse data from external tensors"
"""Error message from onnx if shape inference needs data that the copy does not have. It is not a fault of the model."""


class ModelFault(msgspec.Struct, frozen=True):
    """A fault that makes a model invalid."""

    message: str
    node: str = ""  # affected node, if any
    harmless: bool = False  # all known runtimes load the model anyway
    about: str = ""  # a key of `_TOPIC_PATTERNS`, or "input shape", "output shape", "accepted"


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
    own, unchecked = _find_own_fault(model, path), explain_unchecked(model)
    if (own and not own.harmless) or unchecked:
        return CheckedModel(model, own, unchecked)
    copy = copy_for_checker(model.proto, path) if needs_copy_for_checker(model) else model.proto
    fault, inferred = _run_checker(copy)
    if copy is not model.proto or copy.graph.sparse_initializer:
        inferred = None  # types of changed parts may differ
    if fault is not None and (accepted := remove_accepted_violations(copy)) is not None:
        fault = _run_checker(accepted)[0] or msgspec.structs.replace(fault, harmless=True, about="accepted")
    if fault is None or fault.harmless:
        fault = own or fault or _find_missing_shape(model.proto.graph)
    return CheckedModel(model, fault, "", inferred)


def _find_own_fault(model: ModelView, path: Path) -> ModelFault | None:
    """Return the first fault that onnx does not find. A fault that is not harmless takes precedence."""
    first: ModelFault | None = None
    for fault in _iter_own_faults(model, path):
        if not fault.harmless:
            return fault
        first = first or fault
    return first


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
    for key in find_recursive_functions(view, measure_calls(view)):
        yield ModelFault(f"its local function `{format_function_key(key)}` {RECURSION_MESSAGE}")
    for graph in view.graphs:
        yield from _find_missing_element_types(graph.proto)
        for name in _find_repeated(_list_node_names(graph)):
            yield ModelFault(f"two nodes are named `{name}`", name)
        for name in _find_repeated([tensor.name for tensor in graph.proto.initializer]):
            accepted = graph is view.graphs[0]
            message = f"two initializers are named `{name}`"
            yield ModelFault(message, harmless=accepted, about="accepted" if accepted else "")
        yield from _find_mistyped_initializers(graph.proto) if view.declared else ()
    for function in _list_called_functions(view):
        for name in _find_repeated(_list_node_names(function)):
            called = format_function_key(function_key(function.proto))
            yield ModelFault(f"two nodes of its local function `{called}` are named `{name}`", name)
    for name, tensor in view.tensors:
        is_right = not view.declared and _has_right_raw_data(tensor)  # fast path for most tensors
        if not is_right and (wrong := check_tensor_size(tensor, path)):
            accepted = bool(tensor.name) and tensor.name in list_unused_weights(view.proto.graph)
            yield ModelFault(f"tensor `{name}` {wrong}", harmless=accepted, about="accepted" if accepted else "")


def _list_node_names(graph: GraphView) -> list[str]:
    """Return the names of nodes that must be unique. Runtimes turn `Constant` nodes into initializers."""
    return [node.name for node in graph.nodes if node.name and node.operator[1] != "Constant"]


def _list_called_functions(view: ModelView) -> list[GraphView]:
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


def _has_right_raw_data(tensor: TensorProto) -> bool:
    """Return whether the tensor has raw data of exactly the size that its shape and type require."""
    element = ELEMENT_TYPES.get(tensor.data_type)
    raw = len(tensor.raw_data)
    return bool(raw and element is not None and element.bits) and required_bytes(tensor) == raw


def _find_missing_element_types(graph: GraphProto) -> Iterator[ModelFault]:
    """Yield a fault for each input and output whose type has no element type, which `onnx.checker` does not report.

    Source: ONNX Runtime 1.18 to 1.31 refuses such models, also if the input is not used.
    """
    for role, values in (("input", graph.input), ("output", graph.output), ("value", graph.value_info)):
        for value in values:
            if not _has_element_type(value.type):
                yield ModelFault(f"the type of {role} `{value.name}` has no element type")


def _has_element_type(value_type: TypeProto) -> bool:
    kind = value_type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(getattr(value_type, kind).elem_type)
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(value_type, kind).elem_type
        return inner.WhichOneof("value") is not None and _has_element_type(inner)
    return True


def _find_mistyped_initializers(graph: GraphProto) -> Iterator[ModelFault]:
    """Check the types of initializers without data in the `ModelProto`, because `onnx.checker` skips them."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    for tensor in graph.initializer:
        declared = types.get(tensor.name, tensor.data_type)
        if declared not in (0, tensor.data_type) and has_data_elsewhere(tensor):
            own, of_input = element_name(tensor.data_type), element_name(declared)
            compared = f"but input `{tensor.name}` has type tensor({of_input})"
            yield ModelFault(f"initializer `{tensor.name}` has type tensor({own}), {compared}")


def _find_repeated(names: Sequence[str]) -> Iterator[str]:
    """Yield each name that occurs more than once.

    Source: ONNX Runtime 1.15–1.31 refuses nodes with the same name in one graph or called function, except `Constant`
    nodes. It accepts initializers with the same name in the main graph; onnx.checker accepts all node names.
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


def _run_checker(copy: ModelProto) -> tuple[ModelFault | None, ModelProto | None]:
    """Run the two steps of `onnx.checker` with `full_check=True`: the checker, and strict shape inference.

    Missing shapes are added only for the checker, and sparse weights are replaced only for shape inference.
    """
    from onnx import checker, shape_inference

    content = copy.SerializeToString()
    complete, dense = add_missing_shapes(copy), replace_sparse_weights(copy)
    fault, inferred = None, None
    errors = (
        *(checker.ValidationError, shape_inference.InferenceError, RuntimeError, ValueError, IndexError, OverflowError),
    )
    try:
        checker.check_model(content if complete is copy else complete.SerializeToString())
        inferred = shape_inference.infer_shapes(
            content if dense is copy else dense.SerializeToString(), check_type=True, strict_mode=True
        )
    except errors as error:
        fault = _parse_checker_message(str(error))
    if fault is None or fault.harmless:
        try:
            _infer_folded_shapes(dense, fault)
        except errors as error:
            folded = _parse_checker_message(str(error))
            if folded is not None and (not folded.harmless or re.search(_SUBGRAPH_PATTERN, str(error))):
                fault = msgspec.structs.replace(folded, harmless=False)
    return fault, inferred


def _infer_folded_shapes(model: ModelProto, fault: ModelFault | None) -> None:
    """Infer shapes with folded constants, unless the result would be the same as without."""
    if fault is not None or can_fold(model):
        infer_folded_shapes(model)


def _parse_checker_message(text: str) -> ModelFault | None:
    """Convert an error message from onnx to a fault with a message of one line, without tags and context."""
    if _MISSING_DATA_MESSAGE in text:
        return None
    message = re.sub(_INFERENCE_PREFIX, "", text.partition("\n\n==> Context:")[0]).strip()
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


_FLOAT_FIELD, _INT32_FIELD, _INT64_FIELD, _DOUBLE_FIELD, _UINT64_FIELD = 4, 5, 7, 10, 11
_FIELD_BY_TYPE = {
    **dict.fromkeys((1, 14), _FLOAT_FIELD),
    **dict.fromkeys((11, 15), _DOUBLE_FIELD),
    7: _INT64_FIELD,
    **dict.fromkeys((12, 13), _UINT64_FIELD),
}
"""Field of TensorProto that contains the data of each element type; others use `int32_data`. Source: onnx.proto."""
_FIXED_BYTES = {_FLOAT_FIELD: 4, _DOUBLE_FIELD: 8}
_COMPLEX_TYPES = (14, 15)
_CHUNK_BYTES = 1024 * 1024
_CONTINUATION_BYTES = bytes(range(0x80, 0x100))


def check_tensor_size(tensor: TensorProto, path: Path) -> str:
    """Describe the problem if a tensor has too little or too much data; "" if the amount is correct.

    External data, tensors without data and unknown types are not checked.

    Raises:
        OSError, UnreadableModel: omitted data cannot be read from the file, or the file has changed.
    """
    count = count_tensor_elements(tensor)
    if count > MAX_ELEMENTS:
        return f"has more than {MAX_ELEMENTS:,} elements"
    element = ELEMENT_TYPES.get(tensor.data_type)
    if is_external(tensor) or element is None or any(dim < 0 for dim in tensor.dims):
        return ""
    omitted = find_omitted_data(tensor)
    fields = {name for name in (*DATA_FIELDS.values(), "string_data") if getattr(tensor, name)}
    if omitted and len(fields | {DATA_FIELDS[piece.field] for piece in omitted}) > 1:
        return "stores its data in more than one field"
    raw = sum(piece.length for piece in omitted if piece.field == RAW_DATA) or len(tensor.raw_data)
    if not raw:
        return _check_value_count(tensor, omitted, count, path)
    if tensor.data_type == STRING:
        return "has `raw_data`, which its type does not allow"
    needed = required_bytes(tensor)
    unit = "byte" if raw == 1 else "bytes"
    return "" if needed in (None, raw) else f"has {raw:,} {unit}, but its shape and type require {needed:,}"


def _check_value_count(tensor: TensorProto, omitted: Sequence[OmittedData], count: int, path: Path) -> str:
    field = _FIELD_BY_TYPE.get(tensor.data_type, _INT32_FIELD)
    for piece in omitted:
        if piece.field != field or tensor.data_type == STRING:
            return f"has `{DATA_FIELDS[piece.field]}`, which its type does not allow"
    name = "string_data" if tensor.data_type == STRING else DATA_FIELDS[field]
    count_in_field = len(getattr(tensor, name)) + _count_omitted_entries(omitted, field, path)
    bits = ELEMENT_TYPES[tensor.data_type].bits
    needed: int | None = 2 * count if tensor.data_type in _COMPLEX_TYPES else count
    if bits in (2, 4):  # several elements share an entry
        needed = required_bytes(tensor)
    elif bits == 6:
        needed = None
    return (
        f"has {count_in_field:,} value{'' if count_in_field == 1 else 's'}, but its shape and type require {needed:,}"
        if count_in_field and needed not in (None, count_in_field)
        else ""
    )


def _count_omitted_entries(omitted: Sequence[OmittedData], field: int, path: Path) -> int:
    if not omitted:
        return 0
    if width := _FIXED_BYTES.get(field):
        if any(piece.length % width for piece in omitted):
            raise UnreadableModel("a corrupted model (a value in a tensor is cut off)")
        return sum(piece.length // width for piece in omitted)
    with open_regular(path) as file:
        source, count = FileWindow(file), 0
        for piece in omitted:
            end = piece.offset + piece.length
            if source.read(end - 1, end)[0] >= _CONTINUATION_BYTES[0]:
                raise UnreadableModel("a corrupted model (a value in a tensor is cut off)")
            for at in range(piece.offset, end, _CHUNK_BYTES):  # the last byte of each varint is below 128
                count += len(source.read(at, min(at + _CHUNK_BYTES, end)).translate(None, _CONTINUATION_BYTES))
    return count


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
    from onnx import checker, inliner

    try:
        return ModelView(inliner.inline_local_functions(model.proto))
    except (checker.ValidationError, RuntimeError, ValueError, IndexError):  # an invalid call
        return model


def format_function_key(key: OperatorKey) -> str:
    """Format the name of a local function for messages."""
    domain, name, overload = key
    return f"{domain}.{name}" + (f":{overload}" if overload else "")


_HOME_PATTERN = r"(?:/home/|/Users/|[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))([^/\\\s\"':]+)[/\\][^\s\"'`,;)\]]*"
_SERVICE_ACCOUNTS = frozenset(
    {
        *("runner", "runneradmin", "circleci", "vsts", "vsts_azpcontainer", "jenkins", "gitlab-runner", "buildkite"),
        *("ubuntu", "docker", "app", "user", "nonroot", "vscode", "codespace", "jovyan", "Shared", "Public"),
    }
)
"""Default user accounts in CI images. Source: images from GitHub, CircleCI, Azure, GitLab and Jupyter."""


def find_leaked_paths(model: ModelView) -> tuple[str, ...]:
    """Return the sorted paths to home directories that the metadata of a model contains."""
    texts = (it if isinstance(it, str) else it.decode(errors="replace") for it in model.remarks)
    suspect = (text for text in texts if "/home/" in text or "Users" in text)
    paths = {hit[0] for text in suspect for hit in re.finditer(_HOME_PATTERN, text) if hit[1] not in _SERVICE_ACCOUNTS}
    return tuple(sorted(paths))
