"""The file stage: what each selected file is, and what is wrong with it before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.findings import Place
from onnxgate.evidence.file import InvalidQuantization, ModelFile, Passthrough
from onnxgate.model.checking.quantization_parameters import find_quantization_faults
from onnxgate.model.checking.validity import explain_unchecked, find_fault, find_leaked_paths
from onnxgate.model.facts import STRING
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.fact_extraction import ParsedModel, format_operator_name, list_inputs, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.subgraphs.node_context import find_node, find_source_line
from onnxgate.project.git.repository import find_git_root

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.project.config.project import SelectedModel
    from onnxgate.project.lock.types import Lock, LockedModel


def collect_evidence(models: Sequence[SelectedModel], lock: Lock | None) -> tuple[ModelFile, ...]:
    """Read each model's file, in the order of `models`, without executing anything."""
    locked = lock.models if lock else {}
    return tuple(
        add_known_state(model, locked.get(model.path), inspect_file(model), find_repository_root(model))
        for model in models
    )


def create_unread_file(model: SelectedModel) -> ModelFile:
    """Return a file that could not be read."""
    return ModelFile(model.path, Place(model.path), 0)


def add_known_state(model: SelectedModel, entry: LockedModel | None, file: ModelFile, root: Path) -> ModelFile:
    """The file with what is known without opening it. `root` is git's."""
    file = replace(file, place=model.place, git_path=_relative_path(model.absolute, root))
    if entry is None:
        return file
    external = {data.location: data.sha256 for data in entry.external}
    return replace(file, locked_sha256=entry.sha256, locked_size_bytes=entry.size_bytes, locked_external=external)


def inspect_file(model: SelectedModel) -> ModelFile:
    """Return what reading the file alone shows."""
    file = create_unread_file(model)
    try:
        return _inspect_content(model, file)
    except OSError as error:
        return replace(file, unreadable=(error.strerror or str(error)).lower())


def _inspect_content(model: SelectedModel, file: ModelFile) -> ModelFile:
    if model.absolute.is_file():
        file = replace(file, size_bytes=model.absolute.stat().st_size)
    if pointer := read_pointer(model.absolute):
        return replace(file, pointer=pointer)
    if what := detect_other_type(model.absolute):
        return replace(file, really=what)
    try:
        reading = read_model(model.absolute, model.path, lightly=True)
        return _check_model(model, replace(file, facts=reading.facts), reading)
    except UnreadableModel as reason:
        return replace(file, really=str(reason))


def _check_model(model: SelectedModel, file: ModelFile, reading: ParsedModel) -> ModelFile:
    file = replace(
        file,
        external=check_external_data(reading.proto, model.absolute),
        passthroughs=tuple(_find_passthroughs(reading.proto)),
        leaked=find_leaked_paths(reading.proto),
        unchecked=explain_unchecked(reading.proto),
        quantization=tuple(_find_invalid_quantization(model, reading.proto)),
    )
    wrong = find_fault(reading.proto, model.absolute)
    if wrong is None:
        return file
    place = _find_node_place(model, reading.proto, wrong.node)
    file = replace(file, checker_error=wrong.message, node=wrong.node, node_place=place)
    return replace(file, loads_anyway=wrong.harmless, about=wrong.about)


def _find_passthroughs(proto: ModelProto) -> Iterator[Passthrough]:
    """Inputs that are outputs; those of strings are always copied. Source: onnxruntime 1.16.3 to 1.31.1."""
    names = {value.name for value in list_inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
    return (Passthrough(value.name) for value in proto.graph.output if value.name in names)


def _find_invalid_quantization(model: SelectedModel, proto: ModelProto) -> Iterator[InvalidQuantization]:
    for bad in find_quantization_faults(proto, model.absolute):
        place = find_source_line(bad.node, find_repository_root(model), _config_folder(model))
        yield InvalidQuantization(bad.node.name, format_operator_name(bad.node), bad.what, bad.kind, place)


def _find_node_place(model: SelectedModel, proto: ModelProto, name: str) -> Place | None:
    node = find_node(proto, name)
    return find_source_line(node, find_repository_root(model), _config_folder(model)) if node else None


def _config_folder(model: SelectedModel) -> Path:
    """The config's folder: what the model's path is relative to; its own where it lies elsewhere, and no config is."""
    if Path(model.path).is_absolute():
        return model.absolute.parent
    return model.absolute.parents[len(Path(model.path).parts) - 1]


def find_repository_root(model: SelectedModel) -> Path:
    """Return git's root above the model, or the folder that its path is relative to."""
    folder = _config_folder(model)
    return find_git_root(folder) or folder


def _relative_path(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
