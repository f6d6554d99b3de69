"""Small reports for tests: a sample, and functions that build others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from onnxgate.core.report import Cell, Finding, NotDone, Report, ReportedModel, ReportedPlace, ReportedRuntime

FOLDER = Path(__file__).parents[3] / "fixtures" / "reports"
MINORS = ("1.18.1", "1.19.2", "1.20.1", "1.21.1", "1.22.1")


def sample() -> Report:
    """Return the report from which golden files are created."""
    return msgspec.json.decode((FOLDER / "sample.json").read_bytes(), type=Report)


def report(**changes: Any) -> Report:
    """Return a passing report of one model on five runtimes, with changes."""
    names = [f"onnxruntime {version}" for version in MINORS]
    plain = Report(
        onnxgate="0.1.0",
        verdict="pass",
        exit=0,
        folder="",
        scope="",
        stages=("file", "runtime"),
        models=(ReportedModel(path="m.onnx", sha256="0" * 64),),
        runtimes=tuple(runtime(version) for version in MINORS),
        cells=tuple(Cell(model="m.onnx", runtime=name, state="pass") for name in names),
        findings=(),
        undecided=(),
        skipped=(),
        measured=(),
        counts={},
    )
    return msgspec.structs.replace(plain, **changes)


def runtime(version: str, engine: str = "onnxruntime") -> ReportedRuntime:
    """Return one runtime of the target `server`."""
    return ReportedRuntime(target="server", engine=engine, version=version, python="3.11", providers=())


def finding(message: str = "does not load", **changes: Any) -> Finding:
    """Return an error in `m.onnx`, located at line 7 of the lock."""
    plain = Finding(
        rule="load-failed",
        level="error",
        stage="runtime",
        message=message,
        fix="",
        model="m.onnx",
        node="",
        runtimes=(),
        place=ReportedPlace(path="onnxgate.lock", line=7),
        works_since="",
        works_until="",
        confirmed=False,
        fingerprint="",
    )
    return msgspec.structs.replace(plain, **changes)


def not_done(models: Sequence[str] = ("m.onnx",), **changes: Any) -> tuple[NotDone, ...]:
    """Return the same incomplete check for each model."""
    plain = NotDone(stage="runtime", model="", runtime="", reason="no interpreter was found")
    return tuple(msgspec.structs.replace(plain, model=model, **changes) for model in models)
