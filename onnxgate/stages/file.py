"""The file stage: what each selected file is, and what is wrong with it before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.config.discovery import find_root
from onnxgate.evidence.file import BadQuantization, ModelFile, Passthrough
from onnxgate.findings import Place
from onnxgate.model.checking import fault, unchecked
from onnxgate.model.external import external_uses
from onnxgate.model.identify import really
from onnxgate.model.leaks import leaked_paths
from onnxgate.model.places import named_node, node_place
from onnxgate.model.pointer import read_pointer
from onnxgate.model.quantization import quantization_faults
from onnxgate.model.reading import Reading, inputs, operator_name, read
from onnxgate.model.structure import UnreadableModel
from onnxgate.model.types import STRING

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.config.project import SelectedModel
    from onnxgate.lock.types import Lock, LockedModel


def gather(models: Sequence[SelectedModel], lock: Lock | None) -> tuple[ModelFile, ...]:
    """What reading each model's file told, in the order of `models`; nothing that it holds is run."""
    locked = lock.models if lock else {}
    return tuple(named(model, locked.get(model.path), look(model), root_of(model)) for model in models)


def unseen(model: SelectedModel) -> ModelFile:
    """A file of which nothing is known."""
    return ModelFile(model.path, Place(model.path), 0)


def named(model: SelectedModel, entry: LockedModel | None, file: ModelFile, root: Path) -> ModelFile:
    """The file with what is known without opening it. `root` is git's."""
    file = replace(file, place=model.place, git_path=_relative(model.absolute, root))
    if entry is None:
        return file
    external = {data.location: data.sha256 for data in entry.external}
    return replace(file, locked_sha256=entry.sha256, locked_size_bytes=entry.size_bytes, locked_external=external)


def look(model: SelectedModel) -> ModelFile:
    """What the file itself tells."""
    file = unseen(model)
    try:
        return _look(model, file)
    except OSError as error:
        return replace(file, unreadable=(error.strerror or str(error)).lower())


def _look(model: SelectedModel, file: ModelFile) -> ModelFile:
    if model.absolute.is_file():
        file = replace(file, size_bytes=model.absolute.stat().st_size)
    if pointer := read_pointer(model.absolute):
        return replace(file, pointer=pointer)
    if what := really(model.absolute):
        return replace(file, really=what)
    try:
        reading = read(model.absolute, model.path, lightly=True)
        return _judged(model, replace(file, facts=reading.facts), reading)
    except UnreadableModel as reason:
        return replace(file, really=str(reason))


def _judged(model: SelectedModel, file: ModelFile, reading: Reading) -> ModelFile:
    file = replace(
        file,
        external=external_uses(reading.proto, model.absolute),
        passthroughs=tuple(_passthroughs(reading.proto)),
        leaked=leaked_paths(reading.proto),
        unchecked=unchecked(reading.proto),
        quantization=tuple(_quantization(model, reading.proto)),
    )
    wrong = fault(reading.proto, model.absolute)
    if wrong is None:
        return file
    place = _node_place(model, reading.proto, wrong.node)
    file = replace(file, checker_error=wrong.message, node=wrong.node, node_place=place)
    return replace(file, loads_anyway=wrong.harmless, about=wrong.about)


def _passthroughs(proto: ModelProto) -> Iterator[Passthrough]:
    """Inputs that are outputs; those of strings are always copied. Source: onnxruntime 1.16.3 to 1.31.1."""
    given = {value.name for value in inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
    return (Passthrough(value.name) for value in proto.graph.output if value.name in given)


def _quantization(model: SelectedModel, proto: ModelProto) -> Iterator[BadQuantization]:
    for bad in quantization_faults(proto, model.absolute):
        place = node_place(bad.node, root_of(model), _folder(model))
        yield BadQuantization(bad.node.name, operator_name(bad.node), bad.what, bad.kind, place)


def _node_place(model: SelectedModel, proto: ModelProto, name: str) -> Place | None:
    node = named_node(proto, name)
    return node_place(node, root_of(model), _folder(model)) if node else None


def _folder(model: SelectedModel) -> Path:
    """The config's folder: what the model's path is relative to; its own where it lies elsewhere, and no config is."""
    if Path(model.path).is_absolute():
        return model.absolute.parent
    return model.absolute.parents[len(Path(model.path).parts) - 1]


def root_of(model: SelectedModel) -> Path:
    """Git's root above the model, else the folder that its path is relative to."""
    folder = _folder(model)
    return find_root(folder) or folder


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
