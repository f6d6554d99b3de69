"""One model as text: what git shows the difference of. The same model gives the same text, wherever its file lies.

One line for each node, in an order that follows from how the graph is wired, and with names that stay where they are
when something else changes: a name that somebody gave is kept; one that an exporter numbered is replaced by the
operator and a digest of the node's surroundings, no wider than it takes to tell the node from others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.attributes import float_text
from onnxgate.model.edits import operator_words
from onnxgate.model.external import entries, is_external
from onnxgate.model.identify import really
from onnxgate.model.moves import values_text
from onnxgate.model.naming import Names, given_name
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import inputs, operators, opsets, values
from onnxgate.model.structure import PROTOBUF_BYTES, UnreadableModel, read_structure
from onnxgate.model.types import element_name
from onnxgate.model.wiring import Node, Weight, Wiring, wire

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto

    from onnxgate.model.facts import ValueInfo

FORM = 1
"""Raised when the text of an unchanged model changes: git keeps texts, and may compare an older one with a new one."""
_LISTED = 64
"""Attributes show lists up to this length whole."""
_HASH = 12
_SHOWN = (1, 7, 9)
"""Types whose values show it: 1.0, 1, true."""
_DIGITS = re.compile(r"(\d+)")


def describe(path: Path) -> Iterator[str]:
    """The text, line by line, strings of the model as they are; of what is no model, what it is instead.

    Raises:
        OSError: the file cannot be opened.
    """
    if pointer := read_pointer(path):
        yield from ("Git LFS pointer", f"oid sha256:{pointer.sha256}", f"size {pointer.size_bytes}")
        return
    if wrong := really(path):
        yield from _no_model(path, wrong)
        return
    try:
        proto = read_structure(path)
    except UnreadableModel as reason:
        yield from _no_model(path, str(reason))
        return
    yield from _model(proto, path)


def _no_model(path: Path, what: str) -> Iterator[str]:
    from onnxgate.model.hashing import sha256_of

    yield f"no ONNX model: {what}"
    if not path.is_file():
        return
    size_bytes = path.stat().st_size
    yield f"size {size_bytes}"
    if size_bytes <= PROTOBUF_BYTES:
        yield f"sha256 {sha256_of(path)}"


def _model(proto: ModelProto, path: Path) -> Iterator[str]:
    yield f"ONNX model, described in form {FORM}"
    yield from _stamps(proto)
    yield from (_value("input", value) for value in values(inputs(proto.graph)))
    yield from (_value("output", value) for value in values(proto.graph.output))
    yield ""
    yield "operators"
    yield from (f"  {name} {count}" for name, count in operators(proto).items())
    wired = wire(proto, path)
    yield from ("", "nodes")
    yield from _nodes(wired.main, "  ")
    for name, wiring in sorted(wired.functions.items()):
        yield from ("", f"local function {operator_words(name)}")
        yield from _nodes(wiring, "  ")
    yield from ("", "weights")
    yield from sorted((_weight(it) for it in wired.main.weights.values() if not _is_inline(it)), key=_by_number)


def _stamps(proto: ModelProto) -> Iterator[str]:
    yield f"ir version {proto.ir_version}"
    yield from (f"opset {domain} {version}" for domain, version in opsets(proto).items())
    for what in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if said := getattr(proto, what):
            yield f"{what.replace('_', ' ')} {said}"
    for entry in sorted(proto.metadata_props, key=lambda entry: (entry.key, entry.value)):
        yield f"metadata {entry.key} = {entry.value}"


def _value(role: str, value: ValueInfo) -> str:
    shape = "?" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return f"{role} {value.name}: {value.type or '?'} {shape}"


def _nodes(wiring: Wiring, indent: str, around: Names | None = None) -> Iterator[str]:
    names = Names(wiring, around, _reference)
    for index in wiring.order:
        node = wiring.nodes[index]
        yield f"{indent}{_node(node, names)}"
        for attribute, bodies in sorted(node.bodies.items()):
            for number, body in enumerate(bodies):
                which = f"{attribute}[{number}]" if number else attribute
                yield f"{indent}  {which} ({', '.join(body.inputs)})"
                yield from _nodes(body, f"{indent}    ", names)
    for name, source in zip(wiring.output_names, wiring.outputs, strict=True):
        said = names.of(source)
        if said != name:
            yield f"{indent}{name} <- {said}"
    if wiring.parent is not None:
        held = (_weight(it) for it in wiring.weights.values() if not _is_inline(it))
        yield from (f"{indent}weight {line.strip()}" for line in sorted(held, key=_by_number))


def _node(node: Node, names: Names) -> str:
    made = [names.output(node, index) for index, name in enumerate(node.proto.output) if name] or ["_"]
    taken = ", ".join(names.of(source) or "_" for source in node.sources)
    attributes = [_attribute(it, node) for it in sorted(node.proto.attribute, key=lambda it: it.name)]
    said = " ".join(text for text in attributes if text)
    return f"{', '.join(made)} = {operator_words(node.operator)}({taken}){f' {said}' if said else ''}"


def _attribute(attribute: AttributeProto, node: Node) -> str:
    if attribute.name in node.bodies:
        return ""
    if attribute.ref_attr_name:
        return f"{attribute.name}=@{attribute.ref_attr_name}"
    if attribute.name in node.held:
        return f"{attribute.name}={', '.join(_reference(it) for it in node.held[attribute.name])}"
    return f"{attribute.name}={_plain(attribute)}"


def _plain(attribute: AttributeProto) -> str:
    match attribute.type:
        case attribute.FLOAT:
            return float_text(attribute.f)
        case attribute.INT:
            return str(attribute.i)
        case attribute.STRING:
            return _quoted(attribute.s)
        case attribute.FLOATS:
            return _list([float_text(value) for value in attribute.floats])
        case attribute.INTS:
            return _list([str(value) for value in attribute.ints])
        case attribute.STRINGS:
            return _list([_quoted(value) for value in attribute.strings])
        case _:
            return _digest(attribute.SerializeToString(deterministic=True))


def _quoted(text: bytes) -> str:
    return f'"{text.decode(errors="backslashreplace")}"' if len(text) <= 8 * _LISTED else _digest(text)


def _list(texts: Sequence[str]) -> str:
    if len(texts) <= _LISTED:
        return f"[{', '.join(texts)}]"
    return f"[{len(texts)} elements, {_digest(', '.join(texts).encode())}]"


def _digest(content: bytes) -> str:
    import hashlib

    return f"sha256:{hashlib.sha256(content).hexdigest()[:_HASH]}"


def _is_inline(weight: Weight) -> bool:
    """It is said where it is used: small, and not called so by anybody."""
    return not given_name(weight.name) and bool(_values(weight))


def _reference(weight: Weight) -> str:
    """A weight where it is used: the name that somebody gave it, else what it holds."""
    if weight.kind != "attribute" and (name := given_name(weight.name)):
        return name
    return _values(weight) or f"{_form(weight)}#{_content(weight)}"


def _weight(weight: Weight) -> str:
    small = _values(weight)
    name = given_name(weight.name)
    label = f"  {name} " if name else "  "
    if not name:
        return f"{label}{_form(weight)}#{_content(weight)}"
    return f"{label}{_form(weight)} {f'= {values_text(weight)}' if small else _content(weight)}"


def _form(weight: Weight) -> str:
    kind = "sparse " if len(weight.tensors) > 1 else ""
    return f"{kind}{element_name(weight.type)}[{', '.join(map(str, weight.dims))}]"


def _values(weight: Weight) -> str:
    """What a small weight holds, with its type where that does not show."""
    shown = "" if is_external(weight.tensors[0]) else values_text(weight)
    return f"{element_name(weight.type)} {shown}" if shown and weight.type not in _SHOWN else shown


def _content(weight: Weight) -> str:
    """A digest of the data; of external data where they lie, since git has no more than the model's own file."""
    if is_external(weight.tensors[0]):
        said = entries(weight.tensors[0])
        return " ".join(
            ["external", *(f"{key}={said[key]}" for key in ("location", "offset", "length") if key in said)]
        )
    return weight.digest[:_HASH] or "unreadable"


def _by_number(line: str) -> list[tuple[int, int, str]]:
    """`layer.2` before `layer.10`, however many digits there are."""
    parts = _DIGITS.split(line)
    return [
        (index % 2, len(part.lstrip("0")) * (index % 2), part.lstrip("0") or part) for index, part in enumerate(parts)
    ]
