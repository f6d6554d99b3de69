"""What differs between two models around their nodes and weights: interface, stamps, metadata, data files, spelling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnxgate.model.difference import Changed, FunctionChange, InterfaceChange, OperatorChange
from onnxgate.model.edits import operator_words
from onnxgate.model.external import is_external
from onnxgate.model.facts import ExternalFile, ValueInfo
from onnxgate.model.normal import sides_of, value_words
from onnxgate.model.pairing import Models
from onnxgate.model.reading import operators, opsets
from onnxgate.model.structure import graphs, nodes, tensors
from onnxgate.model.wiring import Wiring

if TYPE_CHECKING:
    from onnx import AttributeProto, ModelProto, StringStringEntryProto

METADATA_CHARACTERS = 80


def interface(old: ModelProto, new: ModelProto) -> Iterator[InterfaceChange]:
    """Inputs, then outputs."""
    (before_in, before_out), (after_in, after_out) = sides_of(old), sides_of(new)
    yield from _side("input", before_in, after_in)
    yield from _side("output", before_out, after_out)


def _side(role: str, old: Sequence[ValueInfo], new: Sequence[ValueInfo]) -> Iterator[InterfaceChange]:
    before, after = {it.name: it for it in old}, {it.name: it for it in new}
    gone = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    renamed = dict(zip(added, gone, strict=True)) if len(gone) == len(added) else {}
    for name, value in after.items():
        was = renamed.get(name, name)
        if was not in before:
            yield InterfaceChange(role=role, change="added", name=name, after=value)  # type: ignore[arg-type]
            continue
        text = "; ".join(text.lstrip(" :") for text in value_words("", before[was], value))
        if text or was != name:
            yield InterfaceChange(
                role=role,  # type: ignore[arg-type]
                change="renamed" if was != name else "changed",
                name=name,
                was=was if was != name else "",
                before=before[was],
                after=value,
                text=text,
            )
    for name in gone if not renamed else ():
        yield InterfaceChange(role=role, change="removed", name=name, before=before[name])  # type: ignore[arg-type]
    kept = [[name for name in names if name in before and name in after] for names in (before, after)]
    if kept[0] != kept[1]:
        order = ", ".join(f"`{name}`" for name in after)
        yield InterfaceChange(role=role, change="reordered", name="", text=f"the order is {order}")  # type: ignore[arg-type]


def stamps(old: ModelProto, new: ModelProto) -> Iterator[Changed]:
    """IR version, opsets, producer, and what else a model says of itself."""
    yield from _said("IR version", str(old.ir_version), str(new.ir_version))
    before, after = opsets(old), opsets(new)
    for domain in sorted({*before, *after}):
        yield from _said(f"opset `{domain}`", _text(before.get(domain)), _text(after.get(domain)))
    for what, name in (("producer", "producer_name"), ("producer's version", "producer_version"), ("domain", "domain")):
        yield from _said(what, getattr(old, name) or None, getattr(new, name) or None)
    yield from _said("model's version", _text(old.model_version or None), _text(new.model_version or None))


def _said(what: str, before: str | None, after: str | None) -> Iterator[Changed]:
    if before != after:
        yield Changed(what=what, before=before, after=after)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def metadata(old: ModelProto, new: ModelProto) -> Iterator[Changed]:
    """Keys of the model's metadata, with what they say."""
    before, after = _entries(old.metadata_props), _entries(new.metadata_props)
    for key in sorted({*before, *after}):
        yield from _said(key, before.get(key), after.get(key))


def _entries(props: Iterable[StringStringEntryProto]) -> dict[str, str]:
    return {entry.key: entry.value for entry in props}


def files(old: Sequence[ExternalFile], new: Sequence[ExternalFile]) -> Iterator[Changed]:
    """Files of external data, by what the model calls them."""
    before, after = ({it.location: _file(it) for it in side} for side in (old, new))
    for location in sorted({*before, *after}):
        yield from _said(location, before.get(location), after.get(location))


def _file(file: ExternalFile) -> str:
    return f"{file.size_bytes:,} bytes, sha256 {file.sha256[:12]}"


def operator_counts(old: ModelProto, new: ModelProto) -> Iterator[OperatorChange]:
    """Operators of which there are more or less."""
    before, after = operators(old), operators(new)
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield OperatorChange(operator=name, before=before.get(name, 0), after=after.get(name, 0))


def functions(models: Models) -> Iterator[FunctionChange]:
    """Local functions; what changed inside of them is said of their nodes."""
    known = {old: new for new, old in models.functions.items()}
    for name in models.new.functions:
        was = models.functions.get(name)
        if was is None:
            yield FunctionChange(change="added", name=operator_words(name))
            continue
        if text := "; ".join(_function(models.old.functions[was], models.new.functions[name])):
            yield FunctionChange(change="changed", name=operator_words(name), text=text)
        if was != name:
            yield FunctionChange(change="renamed", name=operator_words(name), was=operator_words(was))
    for name in models.old.functions:
        if name not in known:
            yield FunctionChange(change="removed", name=operator_words(name))


def _function(old: Wiring, new: Wiring) -> Iterator[str]:
    for domain in sorted({*old.imports, *new.imports}):
        before, after = old.imports.get(domain), new.imports.get(domain)
        if before != after:
            yield f"imports opset {after or 'none'} of `{domain}`, imported {before or 'none'}"
    for what in ("input", "output", "attribute"):
        counts = [len(getattr(it.holder, what)) + (_defaults(it) if what == "attribute" else 0) for it in (old, new)]
        if counts[0] != counts[1]:
            yield f"has {counts[1]} {what}s, had {counts[0]}"
    first, second = ({it.name: it.SerializeToString(deterministic=True) for it in _default(w)} for w in (old, new))
    for name in sorted(set(first) & set(second)):
        if first[name] != second[name]:
            yield f"default of its attribute `{name}` is another"


def _default(wiring: Wiring) -> Sequence[AttributeProto]:
    return list(getattr(wiring.holder, "attribute_proto", ()))


def _defaults(wiring: Wiring) -> int:
    return len(_default(wiring))


def beside(old: ModelProto, new: ModelProto, models: Models) -> Iterator[str]:
    """What is other and changes nothing of what is computed."""
    pairs = [
        (scope.alignment.old.nodes[a], scope.alignment.new.nodes[b])
        for scope in models.scopes
        for a, b in scope.alignment.forth.items()
    ]
    if any(a.proto.name != b.proto.name for a, b in pairs):
        yield "names of nodes"
    if any(list(a.proto.output) != list(b.proto.output) for a, b in pairs):
        yield "names of inner values"
    weights = [(it.old, it.new) for it in models.weights if it.old is not None and it.new is not None]
    if any(a.name != b.name for a, b in weights):
        yield "names of weights"
    if any(_reordered(scope.alignment.forth) for scope in models.scopes):
        yield "the order of nodes"
    if any(_spelling(a.proto) != _spelling(b.proto) and a.attributes == b.attributes for a, b in pairs):
        yield "defaults that are spelled out"
    if any(a.kind != b.kind or is_external(a.tensors[0]) != is_external(b.tensors[0]) for a, b in weights):
        yield "where weights are kept"
    if old.graph.name != new.graph.name:
        yield "the graph's name"
    if _documents(old) != _documents(new):
        yield "document strings"
    if _node_metadata(old) != _node_metadata(new):
        yield "metadata of nodes"
    if _inner_types(old) != _inner_types(new):
        yield "types and shapes of inner values"
    yield from _messages(old, new)


def _messages(old: ModelProto, new: ModelProto) -> Iterator[str]:
    """What stands in a model beside its graph, and is not looked into."""
    for words, before, after in (
        ("quantization annotations", old.graph.quantization_annotation, new.graph.quantization_annotation),
        ("metadata of the graph", old.graph.metadata_props, new.graph.metadata_props),
        ("training information", old.training_info, new.training_info),
    ):
        if [it.SerializeToString() for it in before] != [it.SerializeToString() for it in after]:
            yield words


def _reordered(forth: dict[int, int]) -> bool:
    order = [new for _, new in sorted(forth.items())]
    return order != sorted(order)


def _spelling(node: object) -> list[str]:
    return sorted(attribute.name for attribute in node.attribute)  # type: ignore[attr-defined]


def _documents(model: ModelProto) -> Counter[str]:
    holders = (model, *graphs(model), *nodes(model), *model.functions, *(tensor for _, tensor in tensors(model)))
    values = (it for graph in graphs(model) for it in (*graph.input, *graph.output))
    return Counter(text for it in (*holders, *values) if (text := it.doc_string))


def _node_metadata(model: ModelProto) -> Counter[tuple[str, str]]:
    return Counter((entry.key, entry.value) for node in nodes(model) for entry in node.metadata_props)


def _inner_types(model: ModelProto) -> Counter[bytes]:
    return Counter(
        value.type.SerializeToString(deterministic=True) for graph in graphs(model) for value in graph.value_info
    )
