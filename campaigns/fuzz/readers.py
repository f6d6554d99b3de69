"""All model readers in onnxgate, by name. Each must either return or raise a documented error."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from onnx import ModelProto

from onnxgate.core.findings import Place
from onnxgate.inputs import cases
from onnxgate.inputs.axis_sizes import list_size_settings
from onnxgate.inputs.cases import InputGenerationError, generate_cases
from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.roles import find_role
from onnxgate.model import quantization_parameters, validity
from onnxgate.model.diff.model_diff import NamedModel, compute_diff, measure_weight_changes
from onnxgate.model.diff.text_description import describe_model
from onnxgate.model.equality import model_comparison
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading import external_data, file_format, omitted_data, structure
from onnxgate.model.reading.fact_extraction import extract_facts, list_inputs
from onnxgate.model.reading.file_format import UnreadableModel, read_pointer
from onnxgate.model.reading.graph import build_graphs
from onnxgate.model.reading.tensor_data import UnreadableWeightError, read_chunks
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs import instrumented_models, node_context
from onnxgate.model.subgraphs.instrumented_models import isolate_nodes, read_data_locations
from onnxgate.model.subgraphs.node_context import NamedNode, NeighbourhoodDrawer
from onnxgate.model.subgraphs.reduced_models import (
    NodeSurroundings,
    add_missing_shapes,
    copy_for_checker,
    extract_node,
    function_key,
    kind_without_shape,
    replace_sparse_tensors,
)
from onnxgate.project.config.project import MergedSettings, SelectedModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.file import find_passthroughs
from onnxgate.stages.support.operator_predictions import LocatedModel
from onnxgate.stages.support.stage import collect_model_evidence
from onnxgate.support import operators
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types

FEW_ELEMENTS = 2**15
"""Size limit of generated inputs."""
SOME_NODES = 12
"""Maximum number of nodes to extract."""
Look = Callable[["Subject"], object]


@dataclass(slots=True)
class Subject:
    """A model file and its content. `other` is a valid model in the same folder."""

    path: Path
    other: Path
    scratch: Path
    view: ModelView = field(default_factory=lambda: ModelView(ModelProto()))
    readable: bool = False
    facts: ModelFacts | None = None

    @property
    def proto(self) -> ModelProto:
        """The model's messages."""
        return self.view.proto

    @property
    def nodes(self) -> range:
        """Some nodes in the main graph."""
        return range(min(len(self.proto.graph.node), SOME_NODES))

    def fresh(self) -> Path:
        """An empty folder."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        return self.scratch / "made"


def _pointer(subject: Subject) -> object:
    return read_pointer(subject.path)


def _identify(subject: Subject) -> object:
    return file_format.detect_other_type(subject.path)


def _structure(subject: Subject) -> object:
    subject.view = structure.read_view(subject.path)
    subject.readable = True
    return None


def _slim(subject: Subject) -> object:
    """Read the file as if it had several gigabytes: skip all data longer than a few bytes."""
    small = structure.read_view(subject.path, large_bytes=0, small_bytes=8)
    for _, tensor in small.tensors:
        omitted_data.find_omitted_data(tensor)
    extract_facts(small, subject.path, "m.onnx")
    list(validity._iter_own_faults(small, subject.path))
    for _, tensor in small.tensors:
        _weigh(tensor, subject.path)
    return None


def _weigh(tensor: object, path: Path) -> None:
    try:
        for _ in read_chunks(tensor, path):
            pass
    except UnreadableWeightError:
        pass


def _facts(subject: Subject) -> object:
    subject.facts = extract_facts(subject.view, subject.path, "m.onnx")
    return None


def _read_facts(subject: Subject) -> ModelFacts:
    """Return the facts about the model, if they can be read; another reader reports errors."""
    return subject.facts or extract_facts(ModelView(ModelProto()), subject.path, "m.onnx")


def _external(subject: Subject) -> object:
    return external_data.check_external_data(subject.view, subject.path)


def _locations(subject: Subject) -> object:
    return read_data_locations(subject.path)


def _own_faults(subject: Subject) -> object:
    graph = subject.proto.graph
    shapes = [kind_without_shape(value) for value in (*graph.input, *graph.output)]
    return [*validity._iter_own_faults(subject.view, subject.path), *shapes]


def _checkable(subject: Subject) -> object:
    copy = copy_for_checker(subject.proto, subject.path)
    return add_missing_shapes(copy).SerializePartialToString(), replace_sparse_tensors(copy).SerializePartialToString()


def _remarks(subject: Subject) -> object:
    names = [subject.proto.graph.node[index].name for index in subject.nodes]
    results = [node_context.find_node(subject.view, name) for name in names]
    placed = [node_context.find_source_line(node, subject.path.parent, subject.path.parent) for node in results if node]
    passed = find_passthroughs(subject.proto)
    return placed, passed, validity.find_leaked_paths(subject.view), validity.explain_unchecked(subject.view)


def _quantization(subject: Subject) -> object:
    quantization_faults = quantization_parameters.find_quantization_faults(subject.view, subject.path)
    return [*quantization_faults], quantization_parameters.find_output_steps(subject.view, subject.path)


def _prediction(subject: Subject) -> object:
    prepared = infer_model_types(subject.view)
    known = operators.list_known_releases()
    results = []
    for name in (known[0], known[len(known) // 2], known[-1]):
        limits = get_limits(name)
        assert limits is not None
        results.append(predict(prepared, operators.get_implementation(name), limits))
    return results


@functools.cache
def _runtimes() -> tuple[PlannedRuntime, ...]:
    known = operators.list_known_releases()
    return tuple(
        PlannedRuntime(
            LockedRuntime(engine="onnxruntime", release=release), ("t",), ("all",), ("CPUExecutionProvider",), True
        )
        for release in (known[0], known[-1])
    )


def _stage(subject: Subject) -> object:
    """Run the support stage like `check` and `matrix`, with suggestions."""
    selected = SelectedModel("m.onnx", subject.path, MergedSettings(), Place("m.onnx"))
    facts = _read_facts(subject)
    folder = subject.path.parent
    model = LocatedModel(selected, Place("m.onnx"), folder, folder)
    content = validity.CheckedModel(subject.view, None)
    return collect_model_evidence(model, facts, content, _runtimes())


def _roles(subject: Subject) -> object:
    facts = _read_facts(subject)
    graph = DataflowGraph(subject.view)
    setting = next(iter(list_size_settings(facts.inputs, {})))
    return [find_role(value, facts.inputs, graph, setting) for value in facts.inputs]


def _cases(subject: Subject) -> object:
    facts = _read_facts(subject)
    with mock.patch.object(cases, "MAX_ELEMENTS", FEW_ELEMENTS):
        return generate_cases(facts, subject.view, {}, subject.fresh())


def _describe(subject: Subject) -> object:
    return [*describe_model(subject.path)]


def _normal(subject: Subject) -> object:
    return model_comparison.compare_models(subject.other, subject.path), model_comparison.compare_models(
        subject.path, subject.path
    )


def _difference(subject: Subject) -> object:
    old, new = NamedModel("old", subject.other), NamedModel("new", subject.path)
    return compute_diff(old, new, "1"), compute_diff(new, old, "1"), compute_diff(new, new, "1")


def _movement(subject: Subject) -> object:
    old, new = (build_graphs(structure.read_view(path), path) for path in (subject.other, subject.path))
    return measure_weight_changes(old, new)


def _exposing(subject: Subject) -> object:
    graph = subject.proto.graph
    names = [name for node in graph.node[:SOME_NODES] for name in node.output if name]
    steps = instrumented_models.list_search_nodes(subject.proto, [value.name for value in graph.output])
    portions = instrumented_models.split_by_size(subject.proto, names, {}, 10**9)
    return steps, portions, instrumented_models.expose_values(subject.proto, subject.path, names, subject.fresh())


def _drawing(subject: Subject) -> object:
    nodes = [subject.proto.graph.node[index] for index in subject.nodes]
    named = [NamedNode("", node.name or next(iter(node.output), ""), unnamed=not node.name) for node in nodes]
    return list(map(NeighbourhoodDrawer(subject.view).draw, named))


def _cutting(subject: Subject) -> object:
    graph = subject.proto.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    functions = {function_key(function): function for function in subject.proto.functions}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    around = NodeSurroundings({"ai.onnx": 18}, types.get, MappingProxyType(constants), functions)
    alone = [extract_node(graph.node[index], around, 8, subject.path) for index in subject.nodes]
    return alone, isolate_nodes(subject.proto, list(subject.nodes), {}), [value.name for value in list_inputs(graph)]


OF_FILES: Mapping[str, Look] = {"pointer": _pointer, "identify": _identify, "slim": _slim, "structure": _structure}
"""Readers of files."""
OF_MODELS: Mapping[str, Look] = {
    "facts": _facts,
    "external": _external,
    "faults": _own_faults,
    "checkable": _checkable,
    "remarks": _remarks,
    "quantization": _quantization,
    "locations": _locations,
    "describe": _describe,
    "normal": _normal,
    "difference": _difference,
    "movement": _movement,
    "drawing": _drawing,
    "cutting": _cutting,
    "exposing": _exposing,
    "roles": _roles,
    "cases": _cases,
    "prediction": _prediction,
    "stage": _stage,
}
"""Readers that run only on models that the first readers accepted."""
COSTLY = frozenset(
    {"locations", "describe", "normal", "difference", "movement", "drawing", "exposing", "cases", "stage"}
)
"""Readers that take longer than all other readers together."""
DOCUMENTED: Mapping[str, tuple[type[Exception], ...]] = {
    "slim": (UnreadableModel,),
    "structure": (UnreadableModel,),
    "describe": (),
    "movement": (UnreadableWeightError,),
    "cases": (InputGenerationError,),
    "exposing": (OSError,),
}
"""Documented errors of each reader. "exposing" links external data, which may be missing."""
