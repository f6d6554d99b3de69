"""Text representation of a model for git diffs. Equal models have equal texts, wherever the file is located.

Each node has one line, in topological order. Node names do not depend on other changes: names chosen by a person are
kept, and generated names are replaced with the operator and a digest of the smallest neighborhood that identifies the
node.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.files import sha256_of
from onnxgate.model.diff.changes import format_elements
from onnxgate.model.facts import element_name
from onnxgate.model.reading.external_data import is_external, read_external_entries
from onnxgate.model.reading.fact_extraction import (
    count_operators,
    format_float,
    list_inputs,
    read_opsets,
    read_value_infos,
)
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.reading.graph import Graph, Node, ValueSource, Weight, build_graphs, format_operator_key
from onnxgate.model.reading.omitted_data import find_constant_list, find_omitted_list, read_omitted_list
from onnxgate.model.reading.structure import MAX_PROTOBUF_BYTES, read_view
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import AttributeProto

    from onnxgate.model.facts import ValueInfo


FORMAT_VERSION = 1
"""Version of the text format. Increase it if the text of an unchanged model changes, because git caches texts."""
_MAX_LISTED = 64
"""Maximum number of elements of a list attribute that is shown completely."""
_SHOWN_DIGEST_CHARACTERS = 12
_SELF_EVIDENT_TYPES = (1, 7, 9)
"""Numbers of the element types that the text omits, because elements such as 1.0, 1 and true imply the type."""
_DIGIT_RUN = re.compile(r"(\d+)")


def describe_model(path: Path) -> Iterator[str]:
    """Yield the lines of the text, without escaping strings. For files that are not models, yield the file type.

    Raises:
        OSError: the file cannot be opened.
    """
    if pointer := read_pointer(path):
        yield from ("Git LFS pointer", f"oid sha256:{pointer.sha256}", f"size {pointer.size_bytes}")
        return
    if wrong := detect_other_type(path):
        yield from _describe_other_file(path, wrong)
        return
    try:
        view = read_view(path)
    except UnreadableModel as reason:
        yield from _describe_other_file(path, str(reason))
        return
    yield from _describe_structure(view, path)


def _describe_other_file(path: Path, what: str) -> Iterator[str]:
    yield f"not an ONNX model: {what}"
    if not path.is_file():
        return
    size_bytes = path.stat().st_size
    yield f"size {size_bytes}"
    if size_bytes <= MAX_PROTOBUF_BYTES:
        yield f"sha256 {sha256_of(path)}"


def _describe_structure(view: ModelView, path: Path) -> Iterator[str]:
    proto = view.proto
    yield f"ONNX model, text format {FORMAT_VERSION}"
    yield f"ir version {proto.ir_version}"
    yield from (f"opset {domain} {version}" for domain, version in read_opsets(proto).items())
    for what in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if text := getattr(proto, what):
            yield f"{what.replace('_', ' ')} {text}"
    for entry in sorted(proto.metadata_props, key=lambda entry: (entry.key, entry.value)):
        yield f"metadata {entry.key} = {entry.value}"
    yield from (_describe_value("input", value) for value in read_value_infos(list_inputs(proto.graph)))
    yield from (_describe_value("output", value) for value in read_value_infos(proto.graph.output))
    yield from ("", "operators")
    yield from (f"  {name} {count}" for name, count in count_operators(view).items())
    wired = build_graphs(view, path)
    yield from ("", "nodes")
    yield from _describe_nodes(wired.main, "  ")
    for name, wiring in sorted(wired.functions.items()):
        yield from ("", f"local function {format_operator_key(name)}")
        yield from _describe_nodes(wiring, "  ")
    yield from ("", "weights")
    yield from _describe_weights(wired.main)


def _describe_value(role: str, value: ValueInfo) -> str:
    shape = "?" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return f"{role} {value.name}: {value.type or '?'} {shape}"


def _describe_nodes(wiring: Graph, indent: str, around: ValueNames | None = None) -> Iterator[str]:
    names = ValueNames(wiring, around)
    for index in wiring.order:
        node = wiring.nodes[index]
        outputs = [names.output(node, index) for index, name in enumerate(node.proto.output) if name] or ["_"]
        inputs = ", ".join(names.of(source) or "_" for source in node.sources)
        attributes = [
            _format_attribute(it, node, wiring.model) for it in sorted(node.proto.attribute, key=lambda it: it.name)
        ]
        call = f"{', '.join(outputs)} = {format_operator_key(node.operator)}({inputs})"
        yield indent + " ".join([call, *filter(None, attributes)])
        for attribute, bodies in sorted(node.bodies.items()):
            for number, body in enumerate(bodies):
                which = f"{attribute}[{number}]" if number else attribute
                yield f"{indent}  {which} ({', '.join(body.inputs)})"
                yield from _describe_nodes(body, f"{indent}    ", names)
    for name, source in zip(wiring.output_names, wiring.outputs, strict=True):
        label = names.of(source)
        if label != name:
            yield f"{indent}{name} <- {label}"
    if wiring.parent is not None:
        yield from (f"{indent}weight {line.strip()}" for line in _describe_weights(wiring))


def _format_attribute(attribute: AttributeProto, node: Node, model: Path) -> str:
    if attribute.name in node.bodies:
        return ""
    if attribute.ref_attr_name:
        return f"{attribute.name}=@{attribute.ref_attr_name}"
    if attribute.name in node.tensors:
        return f"{attribute.name}={', '.join(_format_reference(it) for it in node.tensors[attribute.name])}"
    if omitted := find_constant_list(attribute.t) or find_omitted_list(attribute):
        attribute = read_omitted_list(omitted, model)
    match attribute.type:
        case attribute.FLOAT:
            value = format_float(attribute.f)
        case attribute.INT:
            value = str(attribute.i)
        case attribute.STRING:
            value = _format_string(attribute.s)
        case attribute.FLOATS:
            value = _format_list(list(map(format_float, attribute.floats)))
        case attribute.INTS:
            value = _format_list(list(map(str, attribute.ints)))
        case attribute.STRINGS:
            value = _format_list(list(map(_format_string, attribute.strings)))
        case _:
            value = _format_digest(attribute.SerializeToString(deterministic=True))
    return f"{attribute.name}={value}"


def _format_string(text: bytes) -> str:
    return f'"{text.decode(errors="backslashreplace")}"' if len(text) <= 8 * _MAX_LISTED else _format_digest(text)


def _format_list(texts: Sequence[str]) -> str:
    if len(texts) <= _MAX_LISTED:
        return f"[{', '.join(texts)}]"
    return f"[{len(texts)} elements, {_format_digest(', '.join(texts).encode())}]"


def _format_digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()[:_SHOWN_DIGEST_CHARACTERS]}"


def _format_reference(weight: Weight) -> str:
    """Return the name of a weight if a person chose it; otherwise, return a description of the weight's content."""
    if weight.kind != "attribute" and (name := find_user_given_name(weight.name)):
        return name
    return _format_small_weight(weight) or f"{_format_weight_type(weight)}#{_describe_content(weight)}"


def _describe_weights(graph: Graph) -> list[str]:
    """Describe the weights that are not shown next to the nodes: large weights and weights with user-given names."""
    lines = []
    for weight in graph.weights.values():
        name, small = find_user_given_name(weight.name), _format_small_weight(weight)
        if name:
            content = f"= {format_elements(weight)}" if small else _describe_content(weight)
            lines.append(f"  {name} {_format_weight_type(weight)} {content}")
        elif not small:
            lines.append(f"  {_format_weight_type(weight)}#{_describe_content(weight)}")
    return sorted(lines, key=_natural_sort_key)


def _format_weight_type(weight: Weight) -> str:
    kind = "sparse " if len(weight.tensors) > 1 else ""
    return f"{kind}{element_name(weight.type)}[{', '.join(map(str, weight.dims))}]"


def _format_small_weight(weight: Weight) -> str:
    """Format the elements of a small weight after their element type; omit the type if the elements imply it."""
    shown = "" if is_external(weight.tensors[0]) else format_elements(weight)
    return f"{element_name(weight.type)} {shown}" if shown and weight.type not in _SELF_EVIDENT_TYPES else shown


def _describe_content(weight: Weight) -> str:
    """Return a digest of a weight's data; for external data, return its location.

    When git creates a diff, it does not provide the content of external data files.
    """
    if is_external(weight.tensors[0]):
        entries = read_external_entries(weight.tensors[0])
        return " ".join(
            ["external", *(f"{key}={entries[key]}" for key in ("location", "offset", "length") if key in entries)]
        )
    return weight.digest[:_SHOWN_DIGEST_CHARACTERS] or "unreadable"


def _natural_sort_key(line: str) -> list[tuple[int, int, str]]:
    """Return a key for sorting names that places `layer.2` before `layer.10`."""
    parts = _DIGIT_RUN.split(line)
    return [
        (index % 2, len(part.lstrip("0")) * (index % 2), part.lstrip("0") or part) for index, part in enumerate(parts)
    ]


_MAX_STEPS = 6
"""A generated node name contains a digest of preceding nodes. This is their maximum distance from the named node."""
_DIGEST_CHARACTERS = 6
_OUTPUT_SUFFIX = re.compile(r"(_output_\d+|:\d+)$")
_COUNT_SUFFIX = re.compile(r"_\d+$")
_GENERATED_NAME = re.compile(r"(^|[_:.#-])\d+$|^[a-zA-Z]\d+$|^onnx::")
"""Pattern of numbered names that exporters generate.
Source: torch 1.13–2.13 (`/Add_5_output_0`, `onnx::Conv_123`, `val_72`, `relu_1`), tf2onnx 1.17 (`Relu__5:0`)."""


def find_user_given_name(name: str) -> str:
    """Return the name if it was chosen by a person; "" if an exporter generated it."""
    return "" if not name or _GENERATED_NAME.search(_OUTPUT_SUFFIX.sub("", name)) else name


class ValueNames:
    """Names of the values in one graph; `around` contains the names in the enclosing graph."""

    def __init__(self, wiring: Graph, around: ValueNames | None) -> None:
        self._wiring, self._around = wiring, around
        self._ends = frozenset(wiring.output_names)
        outputs = [name for node in wiring.nodes for name in node.proto.output]
        self._counted = {_COUNT_SUFFIX.sub("", name) for name in outputs if _COUNT_SUFFIX.search(name)}
        self._named = self._chosen()

    def of(self, source: ValueSource) -> str:
        """Return the name of a node's input value in the text."""
        weight = self._wiring.weight(source) if source.kind in ("weight", "outer") else None
        if weight is not None:
            return _format_reference(weight)
        if source.kind == "node":
            return self.output(self._wiring.nodes[source.node], source.index)
        if source.kind == "outer" and self._around is not None and self._wiring.parent is not None:
            return self._around.of(self._wiring.parent.resolve(source.name))
        return source.name

    def output(self, node: Node, index: int) -> str:
        """Return the name of a node's output value in the text."""
        name = str(node.proto.output[index]) if index < len(node.proto.output) else ""
        if self._find_chosen_name(name) or name in self._ends:
            return name
        return f"{self._named[node.index]}:{index}" if index else self._named[node.index]

    def _find_chosen_name(self, name: str) -> str:
        """Return the name if a person chose it, otherwise "". `relu` is treated as generated if there is a `relu_1`."""
        return "" if name in self._counted else find_user_given_name(name)

    def _chosen(self) -> list[str]:
        """Return a name for each node: its operator and a digest of its smallest unique neighborhood.

        Equal names are numbered.
        """
        digests = self._digests()
        counts = [Counter(level) for level in digests]
        repeats: Counter[str] = Counter()
        chosen = [""] * len(self._wiring.nodes)
        for index in self._wiring.order:
            depth = next((it for it, level in enumerate(digests) if counts[it][level[index]] == 1), len(digests) - 1)
            name = f"{format_operator_key(self._wiring.nodes[index].operator)}.{digests[depth][index]}"
            repeats[name] += 1
            chosen[index] = f"{name}~{repeats[name]}" if repeats[name] > 1 else name
        return chosen

    def _digests(self) -> list[list[str]]:
        own = [self._own(node) for node in self._wiring.nodes]
        levels = [[_short_digest(text) for text in own]]
        for _ in range(_MAX_STEPS):
            before = levels[-1]
            if len(set(before)) == len(before):
                break
            producers = (
                [(before[it.node], it.index) if it.kind == "node" else it.kind for it in node.reads]
                for node in self._wiring.nodes
            )
            levels.append([_short_digest(f"{text}{makers!r}") for text, makers in zip(own, producers, strict=True)])
        return levels

    def _own(self, node: Node) -> str:
        """Describe a node by its operator, attributes, weights and user-given output names."""
        weights = [
            (it, _format_reference(weight))
            for it, source in enumerate(node.sources)
            if (weight := self._wiring.weight(source))
        ]
        outputs = [self._find_chosen_name(name) for name in node.proto.output]
        inputs = [source.name for source in node.sources if source.kind == "input"]
        return repr((node.operator, sorted(node.attributes.items()), weights, outputs, inputs))


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_CHARACTERS]
