"""Evidence about model files, from which the rules of the file stage create findings."""

from __future__ import annotations

from typing import Literal

import msgspec

from onnxgate.core.findings import Place
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import ExternalUse
from onnxgate.model.reading.file_format import LfsPointer
from onnxgate.model.validity import ModelFault
from onnxgate.project.lock.types import LockedModel


class InvalidQuantization(msgspec.Struct, frozen=True):
    """An invalid scale or zero point of a quantized operator."""

    node: str  # "" if it has no name
    operator: str
    what: str  # "its `y_scale` is 0"
    kind: Literal["value", "shape", "type"]
    place: Place | None  # the source line that created the node


class GraphFaults(msgspec.Struct, frozen=True):
    """Faults found in the graph and metadata of a model that could be read."""

    invalid: ModelFault | None = None  # the first fault that makes the model invalid
    place: Place | None = None  # the source line that created the node with that fault
    unchecked: str = ""  # reason why onnx.checker could not check the model
    passthroughs: tuple[str, ...] = ()  # graph inputs that are also graph outputs
    leaked_paths: tuple[str, ...] = ()  # paths in home directories that the metadata contains
    quantization: tuple[InvalidQuantization, ...] = ()


class ModelFile(msgspec.Struct, frozen=True):
    """A file that was selected for checking, and the results of reading it. The weights of large files are not read."""

    path: str
    place: Place
    git_path: str = ""  # path relative to the root of the git repository
    other_type: str = ""  # type of a file that is not a model: "an empty file", "an HTML page"; "" for a model
    unreadable: str = ""  # why the file could not be opened
    undecided: tuple[str, str] | None = None  # reason and hint if a check failed, or the file was not read completely
    pointer: LfsPointer | None = None
    locked: LockedModel | None = None
    pointer_is_locked: bool = False  # the lock describes the content; with a baseline, so does its lock
    runtimes: tuple[str, ...] = ()  # the locked runtimes that the model must support; empty without a lock
    facts: ModelFacts | None = None  # None if the file could not be read
    external: tuple[ExternalUse, ...] = ()
    is_complete: bool = False  # the model and all of its external data exist, so that the model can be run
    graph: GraphFaults = GraphFaults()
