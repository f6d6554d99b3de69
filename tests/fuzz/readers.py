"""Everything of ours that reads a model, each by a name. None may do anything but answer, or say what it documents."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from onnx import ModelProto

from onnxgate.config.project import MergedSettings, SelectedModel
from onnxgate.findings import Place
from onnxgate.inputs import generate
from onnxgate.inputs.generate import Unfeedable, make_cases
from onnxgate.inputs.graph import Graph
from onnxgate.inputs.roles import role_of
from onnxgate.inputs.sizes import size_settings
from onnxgate.lock.types import LockedRuntime
from onnxgate.model import checking, exposing, external, identify, leaks, normal, places, quantization, structure
from onnxgate.model.apart import apart
from onnxgate.model.copying import checkable, with_dense_weights, with_shapes
from onnxgate.model.cutting import Surroundings, cut, function_key
from onnxgate.model.describing import describe
from onnxgate.model.differing import Given, difference
from onnxgate.model.facts import ModelFacts
from onnxgate.model.movement import weights_moved
from onnxgate.model.neighbourhood import neighbourhood
from onnxgate.model.placing import data_locations
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import facts_of, inputs
from onnxgate.model.weights import UnreadableWeightError, chunks
from onnxgate.model.wire import UnreadableModel
from onnxgate.plan import PlannedRuntime
from onnxgate.stages import file, support
from onnxgate.support import releases
from onnxgate.support.limits import limits_of
from onnxgate.support.predict import predict
from onnxgate.support.typing import prepare

FEW_ELEMENTS = 2**15
"""Generated inputs are no larger here: what matters is which are asked for."""
SOME_NODES = 12
"""So many nodes are drawn, cut out and set apart."""
Look = Callable[["Subject"], object]


@dataclass(slots=True)
class Subject:
    """A model's file, and what was read from it. `other` is a sound model beside it."""

    path: Path
    other: Path
    scratch: Path
    proto: ModelProto = field(default_factory=ModelProto)
    readable: bool = False
    facts: ModelFacts | None = None

    @property
    def nodes(self) -> range:
        """Some of the main graph's nodes."""
        return range(min(len(self.proto.graph.node), SOME_NODES))

    def fresh(self) -> Path:
        """A folder that is empty."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        return self.scratch / "made"


def _pointer(subject: Subject) -> object:
    return read_pointer(subject.path)


def _identify(subject: Subject) -> object:
    return identify.really(subject.path)


def _structure(subject: Subject) -> object:
    subject.proto = structure.read_structure(subject.path)
    subject.readable = True
    return None


def _slim(subject: Subject) -> object:
    """As a file of gigabytes is read: with what is larger than a few bytes left where it is."""
    small = structure.read_structure(subject.path, large_bytes=0, small_bytes=8)
    for _, tensor in structure.tensors(small):
        structure.pieces(tensor)
    facts_of(small, subject.path, "m.onnx")
    list(checking._own_faults(small, subject.path))
    for _, tensor in structure.tensors(small):
        _weigh(tensor, subject.path)
    return None


def _weigh(tensor: object, path: Path) -> None:
    try:
        for _ in chunks(tensor, path):  # type: ignore[arg-type]
            pass
    except UnreadableWeightError:
        pass


def _facts(subject: Subject) -> object:
    subject.facts = facts_of(subject.proto, subject.path, "m.onnx")
    return None


def _known(subject: Subject) -> ModelFacts:
    """The facts, where they could be told: who raised instead was found out already."""
    return subject.facts or facts_of(ModelProto(), subject.path, "m.onnx")


def _external(subject: Subject) -> object:
    return external.external_uses(subject.proto, subject.path)


def _locations(subject: Subject) -> object:
    return data_locations(subject.path)


def _own_faults(subject: Subject) -> object:
    return [*checking._own_faults(subject.proto, subject.path), *checking._shapeless(subject.proto.graph)]


def _checkable(subject: Subject) -> object:
    copy = checkable(subject.proto, subject.path)
    return with_shapes(copy).SerializePartialToString(), with_dense_weights(copy).SerializePartialToString()


def _remarks(subject: Subject) -> object:
    names = [subject.proto.graph.node[index].name for index in subject.nodes]
    found = [places.named_node(subject.proto, name) for name in names]
    placed = [places.node_place(node, subject.path.parent, subject.path.parent) for node in found if node]
    passed = [*file._passthroughs(subject.proto)]
    return placed, passed, leaks.leaked_paths(subject.proto), checking.unchecked(subject.proto)


def _quantization(subject: Subject) -> object:
    found = quantization.quantization_faults(subject.proto, subject.path)
    return [*found], quantization.output_steps(subject.proto, subject.path)


def _prediction(subject: Subject) -> object:
    prepared = prepare(subject.proto)
    known = releases.known()
    found = []
    for name in (known[0], known[len(known) // 2], known[-1]):
        limits = limits_of(name)
        assert limits is not None
        found.append(predict(prepared, releases.implementation(name), limits))
    return found


@functools.cache
def _runtimes() -> tuple[PlannedRuntime, ...]:
    known = releases.known()
    return tuple(
        PlannedRuntime(
            LockedRuntime(engine="onnxruntime", release=release), ("t",), ("all",), ("CPUExecutionProvider",), True
        )
        for release in (known[0], known[-1])
    )


def _stage(subject: Subject) -> object:
    """The support stage as `check` and `matrix` have it, with ways out of what is refused."""
    selected = SelectedModel("m.onnx", subject.path, MergedSettings(), Place("m.onnx"))
    facts = _known(subject)
    folder = subject.path.parent
    return support.gather_model(selected, facts, Place("m.onnx"), folder, folder, _runtimes())


def _roles(subject: Subject) -> object:
    facts = _known(subject)
    graph = Graph(subject.proto)
    setting = next(iter(size_settings(facts.inputs, {})))
    return [role_of(value, facts.inputs, graph, setting) for value in facts.inputs]


def _cases(subject: Subject) -> object:
    facts = _known(subject)
    with mock.patch.object(generate, "MOST_ELEMENTS", FEW_ELEMENTS):
        return make_cases(facts, subject.proto, {}, subject.fresh())


def _describe(subject: Subject) -> object:
    return [*describe(subject.path)]


def _normal(subject: Subject) -> object:
    return normal.compare(subject.other, subject.path), normal.compare(subject.path, subject.path)


def _difference(subject: Subject) -> object:
    old, new = Given("old", subject.other), Given("new", subject.path)
    return difference(old, new, "1"), difference(new, old, "1"), difference(new, new, "1")


def _movement(subject: Subject) -> object:
    return weights_moved(subject.other, subject.path)


def _exposing(subject: Subject) -> object:
    graph = subject.proto.graph
    names = [name for node in graph.node[:SOME_NODES] for name in node.output if name]
    steps = exposing.steps(subject.proto, [value.name for value in graph.output])
    portions = exposing.portions(subject.proto, names, {}, 10**9)
    return steps, portions, exposing.expose(subject.proto, subject.path, names, subject.fresh())


def _drawing(subject: Subject) -> object:
    nodes = [subject.proto.graph.node[index] for index in subject.nodes]
    return [neighbourhood(subject.proto, node.name, next(iter(node.output), "")) for node in nodes]


def _cutting(subject: Subject) -> object:
    graph = subject.proto.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    functions = {function_key(function): function for function in subject.proto.functions}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    around = Surroundings({"ai.onnx": 18}, types.get, MappingProxyType(constants), functions)
    alone = [cut(graph.node[index], around, 8) for index in subject.nodes]
    return alone, apart(subject.proto, list(subject.nodes), {}), [value.name for value in inputs(graph)]


OF_FILES: Mapping[str, Look] = {"pointer": _pointer, "identify": _identify, "slim": _slim, "structure": _structure}
"""Those that take the file as it is."""
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
"""Those that take what the first ones took for a model."""
COSTLY = frozenset(
    {"locations", "describe", "normal", "difference", "movement", "drawing", "exposing", "cases", "stage"}
)
"""Those that cost more than all others together."""
DOCUMENTED: Mapping[str, tuple[type[Exception], ...]] = {
    "slim": (UnreadableModel,),
    "structure": (UnreadableModel,),
    "describe": (),
    "movement": (UnreadableWeightError,),
    "cases": (Unfeedable,),
    "exposing": (OSError,),
}
"""What a reader may raise; "exposing" links external data, which may not be there."""
