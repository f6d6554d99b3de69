"""The difference of two models, from their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model import surroundings
from onnxgate.model.difference import Difference, Side, Verdict
from onnxgate.model.edits import node_edits
from onnxgate.model.external import external_files
from onnxgate.model.facts import ExternalFile
from onnxgate.model.hashing import sha256_of
from onnxgate.model.moves import weight_changes
from onnxgate.model.pairing import match
from onnxgate.model.structure import read_structure
from onnxgate.model.wiring import Wired, wire

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True, slots=True)
class Given:
    """A model's file, and what the user calls it."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class _Model:
    proto: ModelProto
    wired: Wired
    side: Side
    files: tuple[ExternalFile, ...]


def difference(old: Given, new: Given, version: str) -> Difference:
    """What differs. `version` is onnxgate's own.

    Raises:
        UnreadableModel: one of the files is no model.
        OSError: one of them cannot be opened.
    """
    before, after = _read(old), _read(new)
    models = match(before.wired, after.wired)
    nodes, ends = node_edits(models)
    found = Difference(
        onnxgate=version,
        verdict="different",
        old=before.side,
        new=after.side,
        interface=tuple(surroundings.interface(before.proto, after.proto)),
        stamps=tuple(surroundings.stamps(before.proto, after.proto)),
        metadata=tuple(surroundings.metadata(before.proto, after.proto)),
        files=tuple(surroundings.files(before.files, after.files)),
        operators=tuple(surroundings.operator_counts(before.proto, after.proto)),
        functions=tuple(surroundings.functions(models)),
        nodes=tuple(nodes),
        ends=tuple(ends),
        weights=tuple(weight_changes(models)),
        beside=tuple(surroundings.beside(before.proto, after.proto, models)),
    )
    return _judged(found)


def _read(given: Given) -> _Model:
    proto = read_structure(given.path)
    wired = wire(proto, given.path)
    scopes = list(wired.scopes())
    side = Side(
        name=given.name,
        sha256=sha256_of(given.path),
        size_bytes=given.path.stat().st_size,
        nodes=sum(len(scope.nodes) for scope in scopes),
        weights=sum(len(scope.weights) for scope in scopes),
    )
    return _Model(proto, wired, side, external_files(proto, given.path))


def _judged(found: Difference) -> Difference:
    import msgspec

    return msgspec.structs.replace(found, verdict=_verdict(found))


def _verdict(found: Difference) -> Verdict:
    opsets = any(stamp.what.startswith("opset ") for stamp in found.stamps)
    functions = any(function.change != "renamed" for function in found.functions)
    weights = any(weight.change not in ("copied", "unreadable") for weight in found.weights)
    if found.interface or found.nodes or found.ends or opsets or functions or weights:
        return "different"
    if any(weight.change == "unreadable" for weight in found.weights):
        return "undecided"
    return "identical" if found.old.sha256 == found.new.sha256 and not found.files else "same"
