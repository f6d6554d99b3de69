"""Subjects of the file stage's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnxgate.findings import Place
from onnxgate.model.facts import ModelFacts
from onnxgate.model.pointer import LfsPointer


ExternalProblem = Literal["missing", "short", "lfs-pointer", "escapes", "misplaced", "not-a-file", "changed"]


@dataclass(frozen=True, slots=True)
class ExternalUse:
    """One use of external data by one tensor; `problem` is None where it is sound."""

    location: str  # as the model writes it
    tensor: str
    problem: ExternalProblem | None = None
    detail: str = ""  # "ends at byte 4096; the tensor needs 8192"
    pointer_sha256: str = ""  # of an LFS pointer


@dataclass(frozen=True, slots=True)
class Passthrough:
    """A graph output that is a graph input, with no node between (`graph` is empty for the main graph)."""

    name: str
    graph: str = ""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One selected file, and all that reading it (without its weights where it is large) told."""

    path: str
    place: Place
    size_bytes: int
    really: str = ""  # what a file that is no model really is: "an empty file", "an HTML page"; "" where it is one
    pointer: LfsPointer | None = None
    locked_sha256: str = ""  # "" where the lock does not have it
    locked_external: dict[str, str] | None = None  # location -> sha256
    checker_error: str = ""  # onnx.checker's own words, first line
    node: str = ""  # the node the checker's error is about, where it names one
    external: tuple[ExternalUse, ...] = ()
    passthroughs: tuple[Passthrough, ...] = ()
    facts: ModelFacts | None = None  # None where the file could not be read

    @property
    def pointer_is_locked(self) -> bool:
        """The pointer's oid proves that the content is the locked one."""
        return self.pointer is not None and self.pointer.sha256 == self.locked_sha256
