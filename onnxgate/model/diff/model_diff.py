"""Comparison of two model files for `onnxgate diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.model.diff.changes import collect_node_changes, collect_weight_changes
from onnxgate.model.diff.result import (
    Changed,
    Difference,
    FunctionChange,
    InterfaceChange,
    OperatorChange,
    Side,
    Verdict,
    WeightChanges,
)
from onnxgate.model.equality.model_comparison import (
    describe_opset_changes,
    describe_value_change,
    read_interface,
)
from onnxgate.model.equality.model_matching import ModelMatching, match_models
from onnxgate.model.equality.similarity import measure_distance
from onnxgate.model.facts import ExternalFile, ValueInfo
from onnxgate.model.reading.external_data import hash_external_files, is_external
from onnxgate.model.reading.fact_extraction import count_operators, read_opsets
from onnxgate.model.reading.graph import Graph, ModelGraphs, build_graphs, format_operator_key
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError
from onnxgate.model.reading.view import ModelView

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model file and the name that the output shows for it."""

    name: str
    path: Path
    view: ModelView | None = None  # set if the file has already been read


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    proto: ModelProto
    operators: dict[str, int]
    remarks: dict[str, object]
    wired: ModelGraphs
    side: Side
    files: tuple[ExternalFile, ...]


def compute_diff(old: NamedModel, new: NamedModel, version: str) -> Difference:
    """Compare two models. `version` is the onnxgate version.

    Raises:
        UnreadableModel: one of the files is not a model.
        OSError: one of the files cannot be opened.
    """
    before, after = _load_model(old), _load_model(new)
    models = match_models(before.wired, after.wired)
    nodes, ends = collect_node_changes(models)
    result = Difference(
        onnxgate=version,
        verdict="different",
        old=before.side,
        new=after.side,
        interface=tuple(_compare_interfaces(before.proto, after.proto)),
        version_fields=tuple(_compare_headers(before.proto, after.proto)),
        metadata=tuple(_compare_metadata(before.proto, after.proto)),
        files=tuple(_compare_data_files(before.files, after.files)),
        operators=tuple(_compare_operator_counts(before.operators, after.operators)),
        functions=tuple(_compare_functions(models)),
        nodes=tuple(nodes),
        ends=tuple(ends),
        weights=tuple(collect_weight_changes(models)),
        harmless=tuple(_list_harmless_changes(before, after, models)),
    )
    return msgspec.structs.replace(result, verdict=_decide_verdict(result))


def _load_model(model: NamedModel) -> _LoadedModel:
    view = model.view or read_view(model.path)
    wired = build_graphs(view, model.path)
    scopes = list(wired.scopes())
    side = Side(
        name=model.name,
        sha256=sha256_of(model.path),
        size_bytes=model.path.stat().st_size,
        nodes=sum(len(scope.nodes) for scope in scopes),
        weights=sum(len(scope.weights) for scope in scopes),
    )
    files = hash_external_files(view, model.path)  # the view, which takes as much memory as the graphs, is not kept
    return _LoadedModel(view.proto, count_operators(view), _collect_remarks(view), wired, side, files)


def _decide_verdict(result: Difference) -> Verdict:
    opsets = any(it.what.startswith("opset ") for it in result.version_fields)
    functions = any(function.change != "renamed" for function in result.functions)
    weights = any(weight.change not in ("copied", "unreadable") for weight in result.weights)
    if result.interface or result.nodes or result.ends or opsets or functions or weights:
        return "different"
    if any(weight.change == "unreadable" for weight in result.weights):
        return "undecided"
    return "identical" if result.old.sha256 == result.new.sha256 and not result.files else "same"


def _compare_interfaces(old: ModelProto, new: ModelProto) -> Iterator[InterfaceChange]:
    (before_in, before_out), (after_in, after_out) = read_interface(old), read_interface(new)
    yield from _compare_values("input", before_in, after_in)
    yield from _compare_values("output", before_out, after_out)


def _compare_values(
    role: Literal["input", "output"], old: Sequence[ValueInfo], new: Sequence[ValueInfo]
) -> Iterator[InterfaceChange]:
    before, after = {it.name: it for it in old}, {it.name: it for it in new}
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    renamed = dict(zip(added, removed, strict=True)) if len(removed) == len(added) else {}
    for name, value in after.items():
        was = renamed.get(name, name)
        if was not in before:
            yield InterfaceChange(role=role, change="added", name=name, after=value)
            continue
        text = "; ".join(text.lstrip(" :") for text in describe_value_change("", before[was], value))
        if text or was != name:
            yield InterfaceChange(
                role=role,
                change="renamed" if was != name else "changed",
                name=name,
                was=was if was != name else "",
                before=before[was],
                after=value,
                text=text,
            )
    for name in removed if not renamed else ():
        yield InterfaceChange(role=role, change="removed", name=name, before=before[name])
    common = [[name for name in names if name in before and name in after] for names in (before, after)]
    if common[0] != common[1]:
        order = ", ".join(f"`{name}`" for name in after)
        yield InterfaceChange(role=role, change="reordered", name="", text=f"new order: {order}")


def _compare_headers(old: ModelProto, new: ModelProto) -> Iterator[Changed]:
    """Compare the header fields of two models, such as IR version, opsets and producer."""
    before, after = (_list_headers(model) for model in (old, new))
    opsets = (name for name in {*before, *after} if name.startswith("opset "))
    by_domain = sorted(opsets, key=lambda name: name.strip("`"))  # sorts `ai.onnx` before `ai.onnx.ml`
    yield from _compare_entries(before, after, ("IR version", *by_domain, *_HEADER_FIELDS))


_HEADER_FIELDS = {
    "producer": "producer_name",
    "producer's version": "producer_version",
    "domain": "domain",
    "model's version": "model_version",
}


def _list_headers(model: ModelProto) -> dict[str, str]:
    headers = {"IR version": str(model.ir_version)}
    headers |= {f"opset `{domain}`": str(version) for domain, version in read_opsets(model).items()}
    return headers | {what: str(value) for what, name in _HEADER_FIELDS.items() if (value := getattr(model, name))}


def _compare_entries(before: dict[str, str], after: dict[str, str], names: Iterable[str]) -> Iterator[Changed]:
    for name in names:
        if before.get(name) != after.get(name):
            yield Changed(what=name, before=before.get(name), after=after.get(name))


def _compare_metadata(old: ModelProto, new: ModelProto) -> Iterator[Changed]:
    before, after = ({entry.key: entry.value for entry in model.metadata_props} for model in (old, new))
    yield from _compare_entries(before, after, sorted({*before, *after}))


def _compare_data_files(old: Sequence[ExternalFile], new: Sequence[ExternalFile]) -> Iterator[Changed]:
    before, after = (
        {it.location: f"{it.size_bytes:,} bytes, sha256 {it.sha256[:12]}" for it in files} for files in (old, new)
    )
    yield from _compare_entries(before, after, sorted({*before, *after}))


def _compare_operator_counts(before: dict[str, int], after: dict[str, int]) -> Iterator[OperatorChange]:
    for name in sorted({*before, *after}):
        if before.get(name, 0) != after.get(name, 0):
            yield OperatorChange(operator=name, before=before.get(name, 0), after=after.get(name, 0))


def _compare_functions(models: ModelMatching) -> Iterator[FunctionChange]:
    """Compare names, opsets and signatures of local functions. Their nodes are compared like the nodes of graphs."""
    matched = {old: new for new, old in models.functions.items()}
    for name in models.new.functions:
        was = models.functions.get(name)
        if was is None:
            yield FunctionChange(change="added", name=format_operator_key(name))
            continue
        if text := "; ".join(_describe_function_change(models.old.functions[was], models.new.functions[name])):
            yield FunctionChange(change="changed", name=format_operator_key(name), text=text)
        if was != name:
            yield FunctionChange(change="renamed", name=format_operator_key(name), was=format_operator_key(was))
    for name in models.old.functions:
        if name not in matched:
            yield FunctionChange(change="removed", name=format_operator_key(name))


def _describe_function_change(old: Graph, new: Graph) -> Iterator[str]:
    yield from describe_opset_changes(old.imports, new.imports)
    functions = (old.holder, new.holder)
    for what in ("input", "output", "attribute"):
        counts = [len(getattr(it, what)) + (len(it.attribute_proto) if what == "attribute" else 0) for it in functions]
        if counts[0] != counts[1]:
            yield f"number of {what}s changed from {counts[0]} to {counts[1]}"
    first, second = (
        {it.name: it.SerializeToString(deterministic=True) for it in function.attribute_proto} for function in functions
    )
    for name in sorted(set(first) & set(second)):
        if first[name] != second[name]:
            yield f"default of attribute `{name}` changed"


def _list_harmless_changes(old: _LoadedModel, new: _LoadedModel, models: ModelMatching) -> Iterator[str]:
    """Yield the kinds of differences that do not affect the results of the model, such as "node names"."""
    pairs = [
        (scope.alignment.old.nodes[a], scope.alignment.new.nodes[b])
        for scope in models.scopes
        for a, b in scope.alignment.forth.items()
    ]
    if any(a.proto.name != b.proto.name for a, b in pairs):
        yield "node names"
    if any(list(a.proto.output) != list(b.proto.output) for a, b in pairs):
        yield "names of intermediate values"
    weights = [(it.old, it.new) for it in models.weights if it.old is not None and it.new is not None]
    if any(a.name != b.name for a, b in weights):
        yield "weight names"
    orders = ([new for _, new in sorted(scope.alignment.forth.items())] for scope in models.scopes)
    if any(order != sorted(order) for order in orders):
        yield "node order"
    if any(_attribute_names(a.proto) != _attribute_names(b.proto) and a.attributes == b.attributes for a, b in pairs):
        yield "explicit default values"
    if any(a.kind != b.kind or is_external(a.tensors[0]) != is_external(b.tensors[0]) for a, b in weights):
        yield "storage of weights"
    if old.proto.graph.name != new.proto.graph.name:
        yield "graph name"
    yield from (what for what in old.remarks if old.remarks[what] != new.remarks[what])


def _collect_remarks(view: ModelView) -> dict[str, object]:
    """Return the parts of the model that do not affect its results, keyed by description, such as "doc strings"."""
    model, nodes, graphs = view.proto, [node.proto for node in view.nodes()], [graph.proto for graph in view.graphs]
    values = (value for graph in graphs for value in (*graph.input, *graph.output))
    described = (model, *graphs, *nodes, *model.functions, *(it for _, it in view.tensors), *values)
    inner = (value.type for graph in graphs for value in graph.value_info)
    return {
        "doc strings": Counter(text for it in described if (text := it.doc_string)),
        "node metadata": Counter((it.key, it.value) for node in nodes for it in node.metadata_props),
        "types and shapes of intermediate values": Counter(it.SerializeToString(deterministic=True) for it in inner),
        "quantization annotations": [it.SerializeToString() for it in model.graph.quantization_annotation],
        "graph metadata": [it.SerializeToString() for it in model.graph.metadata_props],
        "training information": [it.SerializeToString() for it in model.training_info],
    }


def _attribute_names(node: object) -> list[str]:
    return sorted(attribute.name for attribute in node.attribute)  # type: ignore[attr-defined]


def measure_weight_changes(old: ModelGraphs, new: ModelGraphs) -> WeightChanges | None:
    """Summarize the changes to weights without loading the weights into memory; None if nothing changed.

    Raises:
        UnreadableWeightError: a weight cannot be read.
    """
    models = match_models(old, new)
    of = sum(it.new is not None for it in models.weights)
    added = sum(it.old is None and it.copy_of is None for it in models.weights)
    removed = sum(it.new is None for it in models.weights)
    changed = [(it.old, it.new) for it in models.weights if it.old and it.new and not it.same]
    for weight in (it for pair in models.weights for it in (pair.old, pair.new) if it is not None):
        if not weight.digest:
            raise UnreadableWeightError(f"weight `{weight.name}` cannot be read: {weight.problem}")
    if not (changed or added or removed):
        return None
    largest: float | None = None
    name = ""
    for old_weight, new_weight in changed:
        distance = measure_distance(old_weight, new_weight)
        if distance is not None and distance.unbounded:  # an element is NaN or infinite
            largest, name = None, ""
            break
        if distance is not None and distance.largest is not None and (largest is None or distance.largest > largest):
            largest, name = distance.largest, new_weight.name
    return WeightChanges(changed=len(changed), of=of, added=added, removed=removed, largest=largest, name=name)
