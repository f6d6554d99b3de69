"""A request to fix a single model, and the possible answers of a fix."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix, VersionLimits
from onnxgate.commands.fix.model_file import write_parts
from onnxgate.model.reading.structure import LARGE_BYTES, read_structure


def fix_request(
    path: Path, *, root: Path | None = None, large_bytes: int = LARGE_BYTES, **bounds: int | bool
) -> FixRequest:
    """Return a request to fix the model at a path."""
    scratch = path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return FixRequest(
        path=path,
        proto=read_structure(path, large_bytes=large_bytes),
        limits=VersionLimits(**bounds),  # type: ignore[arg-type]
        root=root or path.parent,
        scratch=scratch,
    )


def changed(fix: Fix, question: FixRequest) -> tuple[onnx.ModelProto, Change]:
    """Return the model that the fix creates; it must create one."""
    change = fix.propose(question)
    assert isinstance(change, Change), change
    made = question.scratch / "made.onnx"
    write_parts(change.parts, made)
    return onnx.load(str(made), load_external_data=False), change


def refused(fix: Fix, question: FixRequest) -> str:
    """Return the reason why the fix does not apply; it must not apply."""
    left = fix.propose(question)
    assert isinstance(left, NoFix), left
    return left.reason
