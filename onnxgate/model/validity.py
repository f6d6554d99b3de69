"""Validity of a model: the full `onnx.checker` on a copy without weights, and checks that it does not do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.files import open_regular
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
from onnxgate.model.reading.structure import (
    DATA_FIELDS,
    RAW_DATA,
    OmittedData,
    find_omitted_data,
    iter_function_nodes,
    iter_graphs,
    iter_scopes,
    iter_tensors,
)
from onnxgate.model.subgraphs.reduced_models import (
    FunctionKey,
    add_missing_shapes,
    called_function_key,
    copy_for_checker,
    function_key,
    has_data_elsewhere,
    kind_without_shape,
    replace_sparse_weights,
)

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto


_FIRST_IR_WITH_OPSETS = 3
_NODE_PATTERNS = (
    re.compile(r"Bad node spec for node\. Name: (.*) OpType: "),
    re.compile(r"of node: \s*[nN]ame: (.*) OpType: "),
    re.compile(r"node name: (.*?)\)"),
)
_INFERENCE_PREFIX = re.compile(r"\[(?:Shape|Type)InferenceError\] (?:Inference error\(s\): )?")
_HARMLESS_PATTERN = re.compile(r"Inferred shape and existing shape differ in (?:rank|dimension)")
_TOPIC_PATTERNS: dict[str, re.Pattern[str]] = {
    "operator": re.compile(r"No Op registered for "),
    "domain": re.compile(r"No opset import for domain"),
    "deprecated": re.compile(r"is deprecated in domain_version"),
    "attribute": re.compile(r"Unrecognized attribute: |Required attribute .* is missing|Mismatched attribute type"),
    "arguments": re.compile(r"has (?:in|out)put size \d+ not in range"),
    "type": re.compile(r"has inconsistent type |has unsupported type: "),
}
"""Topics of onnx's messages that a runtime checks by its own schemas too. Source: onnx 1.16 to 1.23."""
_MISSING_DATA_MESSAGE = "Cannot parse data from external tensors"
"""Shape inference needs data that the copy does not have: not a fault of the model."""


class ModelFault(msgspec.Struct, frozen=True):
    """A fault that makes a model invalid."""

    message: str
    node: str = ""  # the node concerned, if there is one
    harmless: bool = False  # every runtime that we know loads it all the same
    about: str = ""  # a key of `_TOPIC_PATTERNS`, or "input shape", "output shape"


def find_fault(model: ModelProto, path: Path) -> ModelFault | None:
    """Return the first fault of the model at `path`; None if it is valid.

    The installed onnx does not check a model that is newer than it; only onnxgate's own checks run then.

    Raises:
        OSError, UnreadableModel: data that were left in the file cannot be read there.
    """
    own = next(_iter_own_faults(model, path), None)
    if own or explain_unchecked(model):
        return own
    if fault := _run_checker(copy_for_checker(model, path)):
        return fault
    for role, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            if kind_without_shape(value):
                message = f"{role} `{value.name}` says no shape, not even a rank"
                return ModelFault(message, harmless=True, about=f"{role} shape")
    return None


def _iter_own_faults(model: ModelProto, path: Path) -> Iterator[ModelFault]:
    if not model.HasField("graph"):
        yield ModelFault("it has no graph")
    if not model.HasField("ir_version"):
        yield ModelFault("it has no IR version")
    if not model.opset_import and model.ir_version >= _FIRST_IR_WITH_OPSETS:
        yield ModelFault("it imports no opset")
    for key in find_recursive_functions(model, measure_calls(model)) if model.functions else ():
        yield ModelFault(f"its local function `{format_function_key(key)}` {RECURSION_MESSAGE}")
    for graph in iter_graphs(model):
        for name in _find_repeated(node.name for node in graph.node if node.name):
            yield ModelFault(f"two nodes are named `{name}`", name)
        for name in _find_repeated(tensor.name for tensor in graph.initializer):
            yield ModelFault(f"two initializers are named `{name}`")
        types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
        for tensor in graph.initializer:  # `onnx.checker` skips those whose data are external
            declared = types.get(tensor.name, tensor.data_type)
            if declared not in (0, tensor.data_type) and has_data_elsewhere(tensor):
                own, of_input = element_name(tensor.data_type), element_name(declared)
                yield ModelFault(
                    f"initializer `{tensor.name}` is tensor({own}), and the input of its name tensor({of_input})"
                )
    for name, tensor in iter_tensors(model):
        if wrong := check_tensor_size(tensor, path):
            yield ModelFault(f"tensor `{name}` {wrong}")


def _find_repeated(names: Iterable[str]) -> Iterator[str]:
    """Source: ONNX Runtime 1.15 to 1.31 refuses two nodes of one name in one graph; onnx.checker does not look."""
    unique: set[str] = set()
    for name in names:
        if name in unique:
            yield name
        unique.add(name)


def explain_unchecked(model: ModelProto) -> str:
    """Explain why the installed onnx cannot check the model; "" if it can."""
    import onnx

    newest = {DEFAULT_DOMAIN: onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
    imports = [imported for holder in (model, *model.functions) for imported in holder.opset_import]
    unknown = [f"IR version {model.ir_version}"] if model.ir_version > onnx.IR_VERSION else []
    for imported in imports:
        domain = canonical_domain(imported.domain)
        if imported.version > newest.get(domain, imported.version):
            unknown.append(f"opset {imported.version} of `{domain}`")
    if not unknown and (reason := explain_unfollowed_calls(model)):
        return f"{reason}: only onnxgate's own checks ran"
    if not unknown:
        return ""
    return (
        f"onnx {onnx.__version__} does not know {' and '.join(dict.fromkeys(unknown))}: only onnxgate's own checks ran"
    )


def _run_checker(copy: ModelProto) -> ModelFault | None:
    """Run `check_model(full_check=True)` in two steps; only the first one may see the added shapes."""
    from onnx import checker, shape_inference

    try:
        checker.check_model(add_missing_shapes(copy).SerializeToString())
        shape_inference.infer_shapes(
            replace_sparse_weights(copy).SerializeToString(), check_type=True, strict_mode=True
        )
    except (
        checker.ValidationError,
        shape_inference.InferenceError,
        RuntimeError,
        ValueError,
        IndexError,
        OverflowError,
    ) as error:
        return _parse_checker_message(str(error))
    return None


def _parse_checker_message(text: str) -> ModelFault | None:
    """Parse onnx's message into a fault: one line, without its tags and its context."""
    if _MISSING_DATA_MESSAGE in text:
        return None
    message = _INFERENCE_PREFIX.sub("", text.partition("\n\n==> Context:")[0]).strip()
    if "(op_type:" in message:
        lines = message.splitlines()
        harmless = all(map(_HARMLESS_PATTERN.search, lines))
        first = next((line for line in lines if not _HARMLESS_PATTERN.search(line)), lines[0])
        problem, text, message = first.rpartition("): ")[2], first, first
    else:
        problem, harmless = " ".join(message.split()), False
    node = next((match[1].strip() for pattern in _NODE_PATTERNS if (match := pattern.search(text))), "")
    topic = next((topic for topic, pattern in _TOPIC_PATTERNS.items() if pattern.search(message)), "")
    return ModelFault(problem, node, harmless, topic)


_FLOAT_FIELD, _INT32_FIELD, _INT64_FIELD, _DOUBLE_FIELD, _UINT64_FIELD = 4, 5, 7, 10, 11
_FIELD_BY_TYPE = {
    **dict.fromkeys((1, 14), _FLOAT_FIELD),
    **dict.fromkeys((11, 15), _DOUBLE_FIELD),
    7: _INT64_FIELD,
    **dict.fromkeys((12, 13), _UINT64_FIELD),
}
"""Element type -> field of TensorProto; all others are in `int32_data`. Source: onnx.proto."""
_FIXED_BYTES = {_FLOAT_FIELD: 4, _DOUBLE_FIELD: 8}
_COMPLEX_TYPES = (14, 15)
_CHUNK_BYTES = 1024 * 1024
_CONTINUATION_BYTES = bytes(range(0x80, 0x100))


def check_tensor_size(tensor: TensorProto, path: Path) -> str:
    """Explain why a tensor's amount of data is wrong; "" if it is right.

    External data, tensors without data and unknown types are not checked.

    Raises:
        OSError, UnreadableModel: the file that data were left in cannot be read, or has changed.
    """
    count = count_tensor_elements(tensor)
    if count > MAX_ELEMENTS:
        return f"announces more than {MAX_ELEMENTS:,} elements"
    element = ELEMENT_TYPES.get(tensor.data_type)
    if is_external(tensor) or element is None or any(dim < 0 for dim in tensor.dims):
        return ""
    omitted = find_omitted_data(tensor)
    fields = {name for name in (*DATA_FIELDS.values(), "string_data") if getattr(tensor, name)}
    if omitted and len(fields | {DATA_FIELDS[piece.field] for piece in omitted}) > 1:
        return "holds data in more than one field"
    raw = sum(piece.length for piece in omitted if piece.field == RAW_DATA) or len(tensor.raw_data)
    if not raw:
        return _check_value_count(tensor, omitted, count, path)
    if tensor.data_type == STRING:
        return "holds `raw_data`, which is not for its type"
    needed = required_bytes(tensor)
    return "" if needed in (None, raw) else f"holds {raw:,} bytes; its shape and type need {needed:,}"


def _check_value_count(tensor: TensorProto, omitted: Sequence[OmittedData], count: int, path: Path) -> str:
    field = _FIELD_BY_TYPE.get(tensor.data_type, _INT32_FIELD)
    for piece in omitted:
        if piece.field != field or tensor.data_type == STRING:
            return f"holds `{DATA_FIELDS[piece.field]}`, which is not for its type"
    name = "string_data" if tensor.data_type == STRING else DATA_FIELDS[field]
    count_in_field = len(getattr(tensor, name)) + _count_omitted_entries(omitted, field, path)
    bits = ELEMENT_TYPES[tensor.data_type].bits
    needed: int | None = 2 * count if tensor.data_type in _COMPLEX_TYPES else count
    if bits in (2, 4):  # several elements share an entry
        needed = required_bytes(tensor)
    elif bits == 6:
        needed = None
    return (
        f"holds {count_in_field:,} values; its shape and type need {needed:,}"
        if count_in_field and needed not in (None, count_in_field)
        else ""
    )


def _count_omitted_entries(omitted: Sequence[OmittedData], field: int, path: Path) -> int:
    if not omitted:
        return 0
    if width := _FIXED_BYTES.get(field):
        if any(piece.length % width for piece in omitted):
            raise UnreadableModel("a damaged model (a number of a tensor is cut)")
        return sum(piece.length // width for piece in omitted)
    with open_regular(path) as file:
        source, count = FileWindow(file), 0
        for piece in omitted:
            end = piece.offset + piece.length
            if source.read(end - 1, end)[0] >= _CONTINUATION_BYTES[0]:
                raise UnreadableModel("a damaged model (a number of a tensor is cut)")
            for at in range(piece.offset, end, _CHUNK_BYTES):  # the last byte of each varint is below 128
                count += len(source.read(at, min(at + _CHUNK_BYTES, end)).translate(None, _CONTINUATION_BYTES))
    return count


MAX_FUNCTION_NODES = 100_000
"""Calls are not followed if all of a model together become more nodes."""
MAX_CALL_DEPTH = 64
"""Nor are calls that nest deeper than this."""
RECURSION_MESSAGE = "calls itself, directly or through others"


class CallSize(msgspec.Struct, frozen=True):
    """Number of nodes and depth of one inlined call of a function."""

    nodes: int  # at most `MAX_FUNCTION_NODES` + 1
    depth: int


def measure_calls(model: ModelProto) -> dict[FunctionKey, CallSize]:
    """Measure each local function, in linear time; recursive ones have no size."""
    functions = {function_key(function): function for function in model.functions}
    sizes: dict[FunctionKey, int] = {}
    callees: dict[FunctionKey, Counter[FunctionKey]] = {}
    for key, function in functions.items():
        calls = [called_function_key(node) for node in iter_function_nodes(function)]
        sizes[key], callees[key] = len(calls), Counter(called for called in calls if called in functions)
    return _measure_bottom_up(sizes, callees)


def _measure_bottom_up(
    sizes: Mapping[FunctionKey, int], callees: Mapping[FunctionKey, Counter[FunctionKey]]
) -> dict[FunctionKey, CallSize]:
    """Measure each function after those that it calls; recursive ones and their callers are never reached."""
    callers: dict[FunctionKey, list[FunctionKey]] = {key: [] for key in sizes}
    waiting = {key: len(called) for key, called in callees.items()}
    for key, called in callees.items():
        for callee in called:
            callers[callee].append(key)
    ready = [key for key, count in waiting.items() if not count]
    call_sizes: dict[FunctionKey, CallSize] = {}
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


def find_recursive_functions(model: ModelProto, call_sizes: Mapping[FunctionKey, CallSize]) -> tuple[FunctionKey, ...]:
    """List the local functions without a size, sorted."""
    return tuple(sorted({function_key(function) for function in model.functions} - call_sizes.keys()))


def explain_unfollowed_calls(model: ModelProto) -> str:
    """Explain why the calls of a model's local functions are not followed; "" if they are."""
    if not model.functions:
        return ""
    call_sizes = measure_calls(model)
    if unending := find_recursive_functions(model, call_sizes):
        return f"its local function `{format_function_key(unending[0])}` {RECURSION_MESSAGE}"
    if any(called.depth > MAX_CALL_DEPTH for called in call_sizes.values()):
        return f"its local functions call one another more than {MAX_CALL_DEPTH} deep"
    calls = (called_function_key(node) for graph in iter_graphs(model) for node in graph.node)
    if sum(call_sizes[key].nodes for key in calls if key in call_sizes) > MAX_FUNCTION_NODES:
        return f"its local functions become more than {MAX_FUNCTION_NODES:,} nodes"
    return ""


def format_function_key(key: FunctionKey) -> str:
    """Format a function's name for messages."""
    domain, name, overload = key
    return f"{domain}.{name}" + (f":{overload}" if overload else "")


_HOME_PATTERN = r"(?:/home/|/Users/|[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))([^/\\\s\"':]+)[/\\][^\s\"'`,;)\]]*"
_SERVICE_ACCOUNTS = frozenset(
    {
        *("runner", "runneradmin", "circleci", "vsts", "vsts_azpcontainer", "jenkins", "gitlab-runner", "buildkite"),
        *("ubuntu", "docker", "app", "user", "nonroot", "vscode", "codespace", "jovyan", "Shared", "Public"),
    }
)
"""Accounts that services and images have for everybody. Source: images of GitHub, CircleCI, Azure, GitLab, Jupyter."""


def find_leaked_paths(model: ModelProto) -> tuple[str, ...]:
    """List the paths of home directories in the model's metadata, sorted."""
    holders = list(iter_scopes(model))
    nodes = [node for holder in holders for node in holder.node]
    values = (value for holder in holders for value in (*holder.value_info, *getattr(holder, "initializer", ())))
    described = [it.doc_string for it in (model, *holders, *nodes)]
    metadata = [entry.value for it in (model, *holders, *nodes, *values) for entry in it.metadata_props]
    texts = (it if isinstance(it, str) else it.decode(errors="replace") for it in (*described, *metadata))
    suspect = (text for text in texts if "/home/" in text or "Users" in text)
    paths = {hit[0] for text in suspect for hit in re.finditer(_HOME_PATTERN, text) if hit[1] not in _SERVICE_ACCOUNTS}
    return tuple(sorted(paths))
