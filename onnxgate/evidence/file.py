"""Subjects of the file stage's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnxgate.core.findings import Place
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import ExternalProblem, ExternalUse
from onnxgate.model.reading.file_format import LfsPointer

__all__ = ["ExternalProblem", "ExternalUse", "ModelFile", "Passthrough"]


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A graph output that is a graph input, with no node between (`graph` is empty for the main graph)."""

    name: str
    graph: str = ""


@dataclass(frozen=True, slots=True)
class InvalidQuantization:
    """A scale or a zero point that cannot be right."""

    node: str  # "" if it has no name
    operator: str
    what: str  # "its `y_scale` holds 0, by which nothing can be divided"
    kind: Literal["value", "shape", "type"]
    place: Place | None  # the source line that made the node


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One selected file and the results of reading it; weights of a large file are not read."""

    path: str
    place: Place
    size_bytes: int
    really: str = ""  # content of a file other than a model: "an empty file", "an HTML page"; "" for a model
    unreadable: str = ""  # why the file could not be opened
    lost: tuple[str, str] | None = None  # why it could not be judged to the end, and what helps
    pointer: LfsPointer | None = None
    locked_sha256: str = ""  # "" where the lock does not have it
    locked_size_bytes: int = 0
    locked_external: dict[str, str] | None = None  # location -> sha256
    git_path: str = ""  # relative to git's root
    checker_error: str = ""  # what makes the model invalid: onnx.checker's own words, or ours
    node: str = ""  # the node that the error names
    about: str = ""  # what it is about: "operator" or "type", which runtimes judge by their own schemas; "output shape"
    node_place: Place | None = None  # the source line that made that node
    loads_anyway: bool = False  # the error is against ONNX's rules, and every runtime that we know forgives it
    unchecked: str = ""  # why onnx.checker could not check the model: a remark, not a finding
    external: tuple[ExternalUse, ...] = ()
    passthroughs: tuple[Passthrough, ...] = ()
    leaked: tuple[str, ...] = ()  # paths in somebody's home that metadata name
    runtimes: tuple[str, ...] = ()  # the locked runtimes that the model must support; empty without a lock
    quantization: tuple[InvalidQuantization, ...] = ()
    facts: ModelFacts | None = None  # None where the file could not be read

    @property
    def pointer_is_locked(self) -> bool:
        """The pointer's oid and size prove that the content is the locked one."""
        if self.pointer is None:
            return False
        locked = (self.locked_sha256, self.locked_size_bytes)
        return (self.pointer.sha256, self.pointer.size_bytes) == locked

    @property
    def is_whole(self) -> bool:
        """The model and all of its external data are here, so that it can be run."""
        return self.facts is not None and not any(use.problem for use in self.external)
