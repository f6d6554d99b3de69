"""All fixes and their interface. Each fix proposes one kind of change to a model."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, defs
from onnx import __version__ as onnx_version
from onnx.defs import onnx_opset_version

from onnxgate.commands.fix.model_file import (
    FieldMatch,
    Part,
    Span,
    length_delimited_field,
    rewrite_fields,
    total_size,
)
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.model.facts import STRING, Dim, ValueInfo, required_bytes
from onnxgate.model.reading.external_data import classify_layout, read_data_range, read_external_entries
from onnxgate.model.reading.fact_extraction import extract_facts, list_inputs, read_opsets, read_value_infos
from onnxgate.model.reading.file_format import VARINT, UnreadableModel, encode_varint, read_pointer
from onnxgate.model.reading.structure import MAX_PROTOBUF_BYTES, read_structure
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import copy_for_checker, kind_without_shape
from onnxgate.model.validity import find_leaked_paths
from onnxgate.runtimes.worker.exporters.model_file import required_ir_version


@dataclass(frozen=True, slots=True)
class VersionLimits:
    """Highest versions that a model may use, given by its runtimes and the config; None for no limit."""

    ir_version: int | None = None  # the highest allowed version
    opset: int | None = None  # of `ai.onnx`: the pinned version, or the newest that all runtimes support
    pinned: bool = False  # the opset is pinned by the config


@dataclass(frozen=True, slots=True)
class FixRequest:
    """A model to fix, and the data that fixes need."""

    path: Path  # the file; external data are relative to its folder
    proto: ModelProto  # its structure
    limits: VersionLimits
    root: Path  # the repository or, if there is none, the current folder; no file outside it is read
    scratch: Path  # an empty folder
    run_onnx: Callable[[Sequence[str]], str]  # runs `onnx_subprocess.py`; returns "" or the error


@dataclass(frozen=True, slots=True)
class RunnableCopy:
    """A copy of a model for runtimes that reject the original because of its external data."""

    parts: tuple[Part, ...]
    data: Mapping[str, Path]  # name in the folder of the model -> the file


@dataclass(frozen=True, slots=True)
class Change:
    """The change that a fix proposes."""

    parts: tuple[Part, ...]  # the whole file
    words: tuple[str, ...]  # "IR version 13 becomes 10"
    unsafe: str = ""  # why the change requires `--unsafe`
    renamed: Mapping[str, str] = field(default_factory=dict)  # renamed outputs: old name -> new name
    follows: frozenset[str] = frozenset()  # rules whose findings this change is expected to cause
    stand_in: RunnableCopy | None = None
    unlinked: tuple[str, ...] = ()  # data files that the model no longer uses


@dataclass(frozen=True, slots=True)
class NoFix:
    """The reason why a fix does not apply."""

    reason: str
    hint: str = ""
    error: str = ""  # of the converter, for `-v`


@dataclass(frozen=True, slots=True)
class Fix:
    """A kind of repair, which writes files only to the scratch folder of the request."""

    name: str
    rules: frozenset[str]  # the rules that it fixes
    propose: Callable[
        [FixRequest], Change | NoFix | None
    ]  # the change or why it is not possible; None if there is nothing to fix


_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_DATA_FIELDS = frozenset({4, 5, 6, 7, _RAW_DATA, 10, 11, _EXTERNAL_DATA, _DATA_LOCATION})
"""Numbers of the fields of TensorProto that contain data or its location. Source: onnx.proto."""
_MAX_HEADER_BYTES = 64 * 1024
"""Maximum size in bytes of a tensor message without data: its name, shape and location."""
_UNREADABLE_LAYOUTS = ("link", "outside", "absolute")
"""Kinds of external data locations that some runtimes and the onnx package reject (see `classify_layout`)."""


class _NotInlinableError(Exception):
    """Raised if external data cannot be moved into the model. The arguments are the reason and a hint."""


@dataclass(frozen=True, slots=True)
class _DataRange:
    """The file that contains the data of one tensor, with the offset and length of the data."""

    location: str  # as in the model
    file: Path  # after links
    start: int
    length: int


def _inline_external_data(request: FixRequest) -> Change | NoFix | None:
    """Move external data into the model. The bytes are copied unchanged, because `raw_data` has the same layout."""

    def inlined(match: FieldMatch) -> list[Part] | None:
        tensor = _parse_external_tensor(match)
        if tensor is None:
            return None
        place = _locate_data(request, tensor)
        data: list[Part] = [Span(place.file, place.start, place.start + place.length)] if place.length else []
        return match.replaced([*match.without(_DATA_FIELDS), *length_delimited_field(_RAW_DATA, data)])

    try:
        places = [_locate_data(request, tensor) for _, tensor in ModelView(request.proto).external]
        if not places:
            return None
        parts = rewrite_fields(request.path, {("", "TensorProto"): inlined})
        beyond = any(classify_layout(request.path, place.location) in _UNREADABLE_LAYOUTS for place in places)
        stand_in = _make_runnable_copy(request) if beyond else None
    except _NotInlinableError as reason:
        return NoFix(*reason.args)
    if (size := total_size(parts)) > MAX_PROTOBUF_BYTES:
        message = f"the model would have {size:,} bytes, but protobuf requires less than 2 GiB"
        return NoFix(message, "save the model with its external data in the same folder")
    locations = sorted({place.location for place in places})
    files = ", ".join(f"`{location}`" for location in locations)
    words = f"moves {pluralize(len(places), 'tensor')} from {files} into the model ({size:,} bytes)"
    return Change(parts, (words,), stand_in=stand_in, unlinked=tuple(locations), follows=frozenset({"size-grew"}))


def _locate_data(request: FixRequest, tensor: TensorProto) -> _DataRange:
    location, needed = read_external_entries(tensor).get("location", ""), required_bytes(tensor)
    file = _resolve_data_file(request, location)
    try:
        start, length = read_data_range(tensor)
    except ValueError as error:
        raise _NotInlinableError(f"`{tensor.name}` has an invalid range in `{location}`: {error}") from error
    if needed is None or (length is not None and length != needed):
        raise _NotInlinableError(f"the size of `{tensor.name}` in `{location}` does not match its shape and type")
    if start + needed > file.stat().st_size:
        raise _NotInlinableError(f"`{location}` ends before the last byte of `{tensor.name}`", "re-export the model")
    return _DataRange(location, file, start, needed)


def _resolve_data_file(request: FixRequest, location: str) -> Path:
    """Return the path of the external data file at `location`. Files outside the repository are rejected."""
    if not location or "\0" in location or PureWindowsPath(location).drive:
        raise _NotInlinableError("a tensor with external data has no location")
    real = Path(os.path.realpath(request.path.parent / location))
    if not real.is_relative_to(os.path.realpath(request.root)):
        message = f"`{location}` is outside the folder `{request.root}`"
        hint = "copy the file into this folder, or re-export the model"
        raise _NotInlinableError(message, hint)
    try:
        if not stat.S_ISREG(real.stat().st_mode):
            raise _NotInlinableError(f"`{location}` is not a regular file")
    except OSError as error:
        hint = "commit the data file, or re-export the model"
        raise _NotInlinableError(f"`{location}` does not exist", hint) from error
    if read_pointer(real):
        raise _NotInlinableError(
            f"`{location}` is a Git LFS pointer (content not fetched)", f'run `git lfs pull --include "*{real.name}"`'
        )
    return real


def _parse_external_tensor(match: FieldMatch) -> TensorProto | None:
    """Return the parsed tensor if its data is external, otherwise None."""
    locations = [inner.value for inner in match.inner() if inner.number == _DATA_LOCATION]
    if not locations or locations[-1] != TensorProto.EXTERNAL:
        return None
    if match.field.end - match.field.start > _MAX_HEADER_BYTES:
        raise _NotInlinableError("a tensor has both embedded and external data", "re-export the model")
    return TensorProto.FromString(match.content())


def _make_runnable_copy(request: FixRequest) -> RunnableCopy:
    """Return a copy of the model with its data files in one folder, so that runtimes can load it."""
    names: dict[str, str] = {}
    files: dict[str, Path] = {}

    def relocated(match: FieldMatch) -> list[Part] | None:
        tensor = _parse_external_tensor(match)
        if tensor is None:
            return None
        location = read_external_entries(tensor)["location"]
        if location not in names:
            name = PurePosixPath(location).name
            while name in names.values():
                name = f"other-{name}"
            names[location] = name
        files[names[location]] = _resolve_data_file(request, location)
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[location]
        return match.replaced([tensor.SerializeToString()])

    return RunnableCopy(rewrite_fields(request.path, {("", "TensorProto"): relocated}), files)


def _add_missing_types(request: FixRequest) -> Change | NoFix | None:
    """Add missing types of outputs, as found by ONNX's shape inference. Types of inputs cannot be inferred."""
    values = (*request.proto.graph.output, *request.proto.graph.value_info)
    untyped = {value.name for value in values if _lacks_type(value)}
    if not untyped:
        return None
    inferred, error = _infer_types(request, untyped)
    types = {name: value for name, value in inferred.items() if name in untyped and not _lacks_type(value)}
    if error or not types:
        names = ", ".join(f"`{name}`" for name in sorted(untyped))
        reason = f"shape inference could not determine the type of {names}{f' ({error})' if error else ''}"
        return NoFix(reason, "re-export the model with types for all outputs")

    def filled(match: FieldMatch) -> list[Part] | None:
        value = ValueInfoProto.FromString(match.content())
        if value.name not in types or not _lacks_type(value):
            return None
        value.type.CopyFrom(types[value.name].type)
        return match.replaced([value.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): filled, ("GraphProto", "value_info"): filled}, shallow=True)

    words = []
    for value in read_value_infos([types[name] for name in sorted(types)]):
        shape = "" if value.shape is None else f" [{', '.join(map(str, value.shape))}]"
        words.append(f"adds the type of `{value.name}`: {value.type}{shape}")
    follows = frozenset({"output-type-changed", "output-shape-changed"})
    return Change(rewrite_fields(request.path, {("ModelProto", "graph"): graph}), tuple(words), follows=follows)


def _correct_output_shapes(request: FixRequest) -> Change | NoFix | None:
    """Replace declared sizes of outputs that contradict the shapes that ONNX's shape inference finds without them.

    If there are none, a size that inference does not know must be the wrong one, and becomes unknown.
    """
    outputs = read_value_infos(request.proto.graph.output)
    declared = {value.name: value for value in outputs if value.shape is not None and value.type.startswith("tensor(")}
    fixed = {
        name for name, value in declared.items() if not value.shape or any(isinstance(dim, int) for dim in value.shape)
    }
    if not fixed:
        return None
    inferred, error = _infer_output_shapes(request)
    inputs = {dim for value in read_value_infos(request.proto.graph.input) for dim in value.shape or ()}
    corrected = {name: _correct_shape(declared[name], inferred.get(name), inputs) for name in sorted(fixed)}
    changed = {name: shape for name, shape in corrected.items() if shape is not None and shape != declared[name].shape}
    if not changed:
        loose = {name: _forget_sizes(declared[name], inferred.get(name)) for name in sorted(fixed)}
        changed = {name: shape for name, shape in loose.items() if corrected[name] is None and shape is not None}
    if not changed:
        unknown = [f"`{name}`" for name in sorted(fixed) if corrected[name] is None]
        hint = "export the model again with these output axes as dynamic"
        reason = f"shape inference could not determine the shape of {', '.join(unknown)}"
        return NoFix(f"{reason}{f' ({error})' if error else ''}", hint) if unknown else None

    def output(match: FieldMatch) -> list[Part] | None:
        value = ValueInfoProto.FromString(match.content())
        if value.name not in changed:
            return None
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for dim in changed[value.name]:
            if isinstance(dim, int):
                shape.dim.add(dim_value=dim)
            else:
                shape.dim.add(dim_param="" if dim == "?" else dim)
        return match.replaced([value.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): output}, shallow=True)

    words = tuple(
        f"declares the shape of `{name}` as {_format_dims(shape)} instead of {_format_dims(declared[name].shape or ())}"
        for name, shape in changed.items()
    )
    parts = rewrite_fields(request.path, {("ModelProto", "graph"): graph})
    return Change(parts, words, follows=frozenset({"output-shape-changed"}))


def _infer_output_shapes(request: FixRequest) -> tuple[dict[str, ValueInfo], str]:
    """Return the outputs with inferred shapes, and the error if inference failed. Declared shapes are not used."""
    proto = copy_for_checker(request.proto, request.path)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    source, output = request.scratch / "undeclared.onnx", request.scratch / "inferred.onnx"
    source.write_bytes(proto.SerializeToString())
    if error := request.run_onnx(["infer", str(source), str(output)]):
        return {}, error
    values = read_value_infos(ModelProto.FromString(output.read_bytes()).graph.output)
    return {value.name: value for value in values}, ""


def _correct_shape(declared: ValueInfo, inferred: ValueInfo | None, inputs: Container[Dim]) -> tuple[Dim, ...] | None:
    """Return the declared shape with inferred sizes; None if a fixed size cannot be inferred.

    A name is used only if an input has it, since inference also invents names.
    """
    if declared.shape is None or inferred is None or inferred.shape is None:
        return None
    if len(declared.shape) != len(inferred.shape):
        return tuple(dim if isinstance(dim, int) or dim in inputs else "?" for dim in inferred.shape)
    known = [isinstance(dim, int) or dim in inputs for dim in inferred.shape]
    pairs = list(zip(declared.shape, inferred.shape, known, strict=True))
    if any(isinstance(was, int) and not is_known for was, _, is_known in pairs):
        return None
    return tuple(now if isinstance(was, int) else was for was, now, _ in pairs)


def _forget_sizes(declared: ValueInfo, inferred: ValueInfo | None) -> tuple[Dim, ...] | None:
    """Return the declared shape without the fixed sizes that inference does not know; None if it knows no rank."""
    if declared.shape is None or inferred is None or inferred.shape is None:
        return None
    pairs = zip(declared.shape, inferred.shape, strict=True)
    return tuple("?" if isinstance(was, int) and not isinstance(now, int) else was for was, now in pairs)


def _format_dims(shape: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, shape))})"


def _lacks_type(value: ValueInfoProto) -> bool:
    kind = value.type.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return bool(kind_without_shape(value)) or not getattr(value.type, kind).elem_type
    return kind is None


def _infer_types(request: FixRequest, untyped: set[str]) -> tuple[dict[str, ValueInfoProto], str]:
    """Return the inferred type of each value, and the error if inference failed."""
    source, output = request.scratch / "given.onnx", request.scratch / "inferred.onnx"
    proto = copy_for_checker(request.proto, request.path)
    # Inference fails to merge its result with empty entries of inner values.
    for index in reversed(range(len(proto.graph.value_info))):
        if proto.graph.value_info[index].name in untyped:
            del proto.graph.value_info[index]
    source.write_bytes(proto.SerializeToString())
    if error := request.run_onnx(["infer", str(source), str(output)]):
        return {}, error
    proto = ModelProto.FromString(output.read_bytes())
    return {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}, ""


_NODE_FIELD = 1
_IDENTITY_SINCE = {"sequence_type": 14, "optional_type": 16}
"""First opset of `ai.onnx` in which `Identity` accepts a type. Source: ONNX, Identity-14 and -16."""


def _separate_passthroughs(request: FixRequest) -> Change | NoFix | None:
    """Insert an `Identity` node for each output of the main graph that is also an input."""
    proto = request.proto
    passed = {value.name for value in list_inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
    outputs = [value for value in proto.graph.output if value.name in passed]
    if not outputs:
        return None
    opset = read_opsets(proto).get("ai.onnx", 0)
    kinds = {str(value.type.WhichOneof("value")) for value in outputs}
    if not opset or any(opset < _IDENTITY_SINCE.get(kind, 1) for kind in kinds):
        reason = (
            f"opset {opset} of `ai.onnx` does not support `Identity` for this type"
            if opset
            else "the model does not import `ai.onnx`"
        )
        hint = "change the export to return a copy of the input, and re-export the model"
        return NoFix(f"no `Identity` node can be inserted: {reason}", hint)
    return _insert_identities(request, passed, [value.name for value in outputs])


def _insert_identities(request: FixRequest, passed: set[str], names: list[str]) -> Change:
    """Insert an `Identity` node between each input and the output of the same name, and rename the output."""
    used = set(_used_names(request.proto))
    identities = [(name, _reserve_name(f"{name}_out", used), _reserve_name(f"{name}_identity", used)) for name in names]
    new_names = iter([output for _, output, _ in identities])

    def renamed(match: FieldMatch) -> list[Part] | None:
        if ValueInfoProto.FromString(match.content()).name not in passed:
            return None
        output = next(new_names).encode()
        return match.edited({("ValueInfoProto", "name"): lambda name: name.replaced([output])}, shallow=True)

    nodes: list[Part] = []
    for source, output, name in identities:
        node = NodeProto(op_type="Identity", name=name, input=[source], output=[output])
        nodes += length_delimited_field(_NODE_FIELD, [node.SerializeToString()])

    def graph(match: FieldMatch) -> list[Part]:
        return match.edited({("GraphProto", "output"): renamed}, *nodes, shallow=True)

    renames = {name: output for name, output, _ in identities}
    listed = ", ".join(f"`{name}` becomes `{output}`" for name, output, _ in identities)
    return Change(
        rewrite_fields(request.path, {("ModelProto", "graph"): graph}),
        tuple(
            f"inserts `Identity` after input `{name}`; the model output is renamed to `{output}`"
            for name, output, _ in identities
        ),
        unsafe=f"an output is renamed ({listed}), which breaks callers that use the old name",
        renamed=renames,
        follows=frozenset({"output-renamed", "output-added", "output-removed", "operators-changed"}),
    )


def _reserve_name(name: str, used: set[str]) -> str:
    """Return the name, with a number appended if it is already in `used`, and add it to `used`."""
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    unused = next(candidate for candidate in candidates if candidate not in used)
    used.add(unused)
    return unused


def _used_names(proto: ModelProto) -> Iterator[str]:
    """Yield the names of all values and nodes, including those in subgraphs."""
    for scope in ModelView(proto).scopes:
        for node in scope.nodes:
            yield from (node.name, *node.inputs, *node.outputs)
        yield from (value.name for value in scope.proto.value_info)
    yield from (value.name for value in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer))
    yield from (sparse.values.name for sparse in proto.graph.sparse_initializer)


MAX_CONVERTED_BYTES = 500 * 1000 * 1000
"""Maximum size in bytes of a model to convert to another opset. The converter needs several times as much memory."""
UNCONVERTIBLE_OPERATOR = re.compile(r"No (?:Adapter (?:From|To) Version \S+ for|Previous Version of) (\w+)")
"""Matches an error of the onnx version converter.

Source: onnx 1.23, version_converter/BaseConverter.h and no_previous_version.h.
"""


def _convert_opset(request: FixRequest) -> Change | NoFix | None:
    """Convert the opset of `ai.onnx` with the onnx package, in another process because the converter may crash."""
    target, now = request.limits.opset, read_opsets(request.proto).get("ai.onnx")
    if target is None or now is None or now == target or (now < target and not request.limits.pinned):
        return None
    graph, reason = request.proto.graph, ""
    hint = f"re-export the model at opset {target}"
    if now > onnx_opset_version():
        reason = f"onnx {onnx_version} does not support opset {now}"
    elif request.proto.functions:
        reason = "the onnx version converter drops local functions"
    elif graph.sparse_initializer or request.proto.training_info:
        reason = "the onnx version converter drops sparse weights and training information"
    elif request.path.stat().st_size > MAX_CONVERTED_BYTES:
        reason = f"the model is larger than {MAX_CONVERTED_BYTES:,} bytes"
    if reason:
        return NoFix(f"cannot convert to opset {target}: {reason}", hint)
    converted = request.scratch / "converted.onnx"
    if error := request.run_onnx(["convert", str(request.path), str(converted), str(target)]):
        operators = _name_unconvertible(request, error, target)
        subject = join_phrases([f"`{name}`" for name in operators]) or "this model"
        missing = [f"`{name}`" for name in operators if "." not in name and not defs.has(name, target)]
        hint += f", which has no {join_phrases(missing)}" if missing else ""
        return NoFix(f"the onnx version converter cannot convert {subject} to opset {target}", hint, error)
    try:
        proto = read_structure(converted, large_bytes=MAX_CONVERTED_BYTES * 2)
    except (OSError, UnreadableModel) as error:
        return NoFix("the onnx version converter wrote an invalid file", hint, str(error))
    _restore_metadata(request.proto, proto)
    before, after = (extract_facts(ModelView(model), request.path, "") for model in (request.proto, proto))
    if (before.inputs, before.outputs) != (after.inputs, after.outputs):
        return NoFix("the onnx version converter changes the inputs or outputs", hint)
    words = (f"converts opset {now} of `ai.onnx` to {target} with the onnx version converter",)
    return Change((proto.SerializeToString(),), words, follows=frozenset({"operators-changed", "weights-changed"}))


def _name_unconvertible(request: FixRequest, error: str, target: int) -> list[str]:
    """Return the operators that stop the conversion: those that fail alone, or the one that the error names."""
    output = request.scratch / "unconvertible.txt"
    blamed = not request.run_onnx(["blame", str(request.path), str(output), str(target)])
    names = output.read_text(encoding="utf-8").split() if blamed else []
    operator = UNCONVERTIBLE_OPERATOR.search(error)
    return names or ([operator[1]] if operator else [])


def _restore_metadata(old: ModelProto, new: ModelProto) -> None:
    """Restore metadata that the version converter drops: copy it from the old model to the new one."""
    new.ir_version = max(old.ir_version, required_ir_version(new))
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(new, name, getattr(old, name))
    nodes_by_key = {(node.op_type, node.name, *node.output): node for node in old.graph.node}
    for node in new.graph.node:
        if before := nodes_by_key.get((node.op_type, node.name, *node.output)):
            del node.metadata_props[:]
            node.metadata_props.extend(before.metadata_props)
            node.doc_string = before.doc_string


def _lower_ir_version(request: FixRequest) -> Change | NoFix | None:
    """Lower the model's IR version to the newest that the config allows and all runtimes support."""
    highest, now = request.limits.ir_version, request.proto.ir_version
    if highest is None or now <= highest:
        return None
    least = required_ir_version(request.proto)
    if least > highest:
        reason = f"the model uses features of IR version {least}; the newest allowed version is {highest}"
        return NoFix(reason, "export at an older opset, or require newer releases in the target")
    lowered = encode_varint(1 << 3 | VARINT) + encode_varint(highest)
    parts = rewrite_fields(request.path, {("ModelProto", "ir_version"): lambda _: [lowered]})
    return Change(parts, (f"changes IR version {now} to {highest}; the model uses features up to IR version {least}",))


_PACKAGES_FOLDER = re.compile(r".*[/\\](?:site|dist)-packages[/\\]+")
_DOCUMENTED_MESSAGES = (
    *("ModelProto", "GraphProto", "FunctionProto", "NodeProto", "ValueInfoProto", "TensorProto", "AttributeProto"),
    "OperatorSetIdProto",
)
"""Protobuf messages that have a `doc_string`, `metadata_props` or both."""


def _shorten_leaked_paths(request: FixRequest) -> Change | NoFix | None:
    """Shorten absolute paths in the model's texts.

    Paths in the repository or in `site-packages` become relative to that folder; others are reduced to the file name.
    """
    paths = {}
    for path in find_leaked_paths(ModelView(request.proto)):
        inside = _PACKAGES_FOLDER.sub("", path)
        if path.startswith(f"{request.root}/"):
            paths[path] = path[len(f"{request.root}/") :]
        elif inside != path:
            paths[path] = inside
        else:
            paths[path] = (PureWindowsPath(path) if "\\" in path else PurePosixPath(path)).name
    if not paths:
        return None
    short_paths = {path.encode(): short.encode() for path, short in paths.items()}
    longest = sorted(short_paths, key=len, reverse=True)  # files before their folder
    pattern = re.compile(b"|".join(map(re.escape, longest)))

    def text(match: FieldMatch) -> list[Part] | None:
        content = match.content()
        new = pattern.sub(lambda hit: short_paths[hit[0]], content)
        return None if new == content else match.replaced([new])

    def entry(match: FieldMatch) -> list[Part]:
        return match.edited({("StringStringEntryProto", "value"): text}, shallow=True)

    edits = {(message, "doc_string"): text for message in _DOCUMENTED_MESSAGES}
    edits |= {(message, "metadata_props"): entry for message in _DOCUMENTED_MESSAGES}
    words = tuple(f"replaces `{path}` with `{short}`" for path, short in sorted(paths.items()))
    return Change(rewrite_fields(request.path, edits), words)


EXTERNAL_DATA = Fix(
    "external-data",
    frozenset({"external-data-escapes", "external-data-refused", "data-file-added"}),
    _inline_external_data,
)
MISSING_TYPES = Fix("missing-types", frozenset({"invalid-model"}), _add_missing_types)
OPSET = Fix("opset", frozenset({"opset-too-new", "opset-mismatch"}), _convert_opset)
IR_VERSION = Fix("ir-version", frozenset({"ir-version-too-new", "ir-version-mismatch"}), _lower_ir_version)
PASSTHROUGH = Fix("passthrough", frozenset({"input-passthrough"}), _separate_passthroughs)
LEAKED_PATHS = Fix("leaked-paths", frozenset({"path-leaked"}), _shorten_leaked_paths)
OUTPUT_SHAPES = Fix("output-shapes", frozenset({"output-shape-wrong"}), _correct_output_shapes)
FIXES = (EXTERNAL_DATA, MISSING_TYPES, OUTPUT_SHAPES, OPSET, IR_VERSION, PASSTHROUGH, LEAKED_PATHS)
"""Fixes in the order in which they are applied.

Types are added before an opset conversion, which would add them itself. The IR version is lowered after fixes that may
need a newer one.
"""
