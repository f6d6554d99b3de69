"""File stage: check whether each selected file is a valid and complete model, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onnxgate.core.findings import Place
from onnxgate.core.process_pool import FailedCallError
from onnxgate.evidence.file import GraphFaults, InvalidQuantization, ModelFile
from onnxgate.model.facts import STRING
from onnxgate.model.onnx_functions import ignore_error
from onnxgate.model.quantization_consistency import find_inconsistencies
from onnxgate.model.quantization_parameters import find_quantization_faults
from onnxgate.model.reading.external_data import check_external_data
from onnxgate.model.reading.fact_extraction import format_operator_name, list_inputs, read_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type, read_pointer
from onnxgate.model.reading.structure import read_light_view
from onnxgate.model.subgraphs.node_context import find_node, find_source_line
from onnxgate.model.subgraphs.reduced_models import mark_unused
from onnxgate.model.validity import CheckedModel, ModelFault, check_model, find_leaked_paths, find_own_fault
from onnxgate.project.git.repository import find_git_root

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.model.quantization_parameters import QuantizationFault
    from onnxgate.model.reading.view import ModelView
    from onnxgate.project.config.project import SelectedModel
    from onnxgate.project.lock.types import LockedModel


def add_known_state(model: SelectedModel, entry: LockedModel | None, file: ModelFile, root: Path) -> ModelFile:
    """Add facts that can be determined without opening the file. `root` is the repository root."""
    path = model.absolute
    root = find_repository_root(model) if Path(model.path).is_absolute() else root
    if ".." in path.parts or not path.is_relative_to(root):
        path, root = path.parent.resolve() / path.name, root.resolve()
    git_path = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    pointer = file.pointer
    is_locked = (
        pointer is not None
        and entry is not None
        and (pointer.sha256, pointer.size_bytes) == (entry.sha256, entry.size_bytes)
    )
    return replace(file, place=model.place, git_path=git_path, locked=entry, pointer_is_locked=is_locked)


class InspectedFile(msgspec.Struct, frozen=True):
    """Result of inspecting a file, with the checked model if the file is a model."""

    file: ModelFile
    content: CheckedModel | None = None


def inspect_file(model: SelectedModel) -> InspectedFile:
    """Inspect a file without using the lock or the repository.

    If `record_failed_calls` records that a function of onnx failed, only the other checks run.
    """
    file = ModelFile(model.path, Place(model.path))
    try:
        if pointer := read_pointer(model.absolute):
            return InspectedFile(replace(file, pointer=pointer))
        if other_type := detect_other_type(model.absolute):
            return InspectedFile(replace(file, other_type=other_type))
        reading = read_model(model.absolute, model.path, lightly=True)
        external = mark_unused(reading.view, check_external_data(reading.view, model.absolute))
        try:
            checked = check_model(reading.view, model.absolute)
        except FailedCallError as error:
            ignore_error(error)
            checked = CheckedModel(reading.view, find_own_fault(reading.view, model.absolute))
        inspected = replace(
            file,
            facts=reading.facts,
            external=external,
            is_complete=not any(use.problem and not use.is_unused for use in external),
            graph=_check_graph(model, checked),
        )
        return InspectedFile(inspected, checked)
    except UnreadableModel as reason:
        return InspectedFile(replace(file, other_type=str(reason)))
    except OSError as error:
        return InspectedFile(replace(file, unreadable=(error.strerror or str(error)).lower()))


def read_checked_model(path: Path) -> CheckedModel | None:
    """Read and check a model; None if the file is missing or not a model."""
    try:
        view = read_light_view(path)
    except (OSError, UnreadableModel):
        return None
    try:
        return check_model(view, path)
    except (OSError, UnreadableModel) as reason:  # raised when omitted data is read from the file
        return CheckedModel(view, ModelFault(str(reason)))


def _check_graph(model: SelectedModel, checked: CheckedModel) -> GraphFaults:
    view = checked.view
    root, folder = find_repository_root(model), _config_folder(model)
    faults = GraphFaults(
        passthroughs=find_passthroughs(view.proto),
        leaked_paths=find_leaked_paths(view),
        unchecked=checked.unchecked,
        quantization=tuple(
            InvalidQuantization(
                node=bad.node.name,
                operator=format_operator_name(bad.node),
                what=bad.what,
                kind=bad.kind,
                place=find_source_line(bad.node, root, folder),
            )
            for bad in _find_quantization_faults(view, model.absolute)
        ),
    )
    invalid = checked.fault
    node = find_node(view, invalid.node) if invalid is not None else None
    return replace(faults, invalid=invalid, place=find_source_line(node, root, folder) if node is not None else None)


def _find_quantization_faults(model: ModelView, path: Path) -> Iterator[QuantizationFault]:
    """Yield invalid parameters; if there are none, yield parameters that are inconsistent."""
    invalid = list(find_quantization_faults(model, path))
    yield from invalid or find_inconsistencies(model, path)


def find_passthroughs(proto: ModelProto) -> tuple[str, ...]:
    """Return the inputs that are also outputs. String inputs are excluded, because ONNX Runtime copies them.

    Source: measured with releases 1.16.3–1.31.1.
    """
    names = {value.name for value in list_inputs(proto.graph) if value.type.tensor_type.elem_type != STRING}
    return tuple(value.name for value in proto.graph.output if value.name in names)


def _config_folder(model: SelectedModel) -> Path:
    """Return the folder that the model path is relative to; for an absolute path, the folder of the model."""
    path = Path(model.path)
    return model.absolute.parents[0 if path.is_absolute() else len(path.parts) - 1]


def find_repository_root(model: SelectedModel) -> Path:
    """Return the root of the model's repository; without one, the folder that the model path is relative to."""
    folder = _config_folder(model)
    return find_git_root(folder) or folder
