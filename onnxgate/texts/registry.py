"""All entries, in the order in which they are tried: what says more comes first."""

from __future__ import annotations

import functools

from onnxgate.texts import (
    engines,
    exporters,
    onnx,
    onnxruntime_files,
    onnxruntime_graphs,
    onnxruntime_load,
    onnxruntime_run,
    packages,
    system,
    torch_onnx,
)
from onnxgate.texts.entry import Entry

EMITTERS: dict[str, tuple[Entry, ...]] = {
    "ONNX Runtime, running": onnxruntime_run.ENTRIES,
    "ONNX Runtime, files and providers": onnxruntime_files.ENTRIES,
    "ONNX Runtime, loading": (*onnxruntime_load.ENTRIES, *onnxruntime_graphs.ENTRIES),
    "torch.onnx": torch_onnx.ENTRIES,
    "onnx": onnx.ENTRIES,
    "Other engines": engines.ENTRIES,
    "Other exporters": exporters.ENTRIES,
    "pip": packages.PIP,
    "uv": packages.UV,
    "numpy": packages.NUMPY,
    "protobuf": packages.PROTOBUF,
    "Files and packages": system.ENTRIES,
}
"""By who says it."""


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All of them, the general ones last."""
    every = [entry for group in EMITTERS.values() for entry in group]
    return tuple(sorted(every, key=lambda entry: entry.general))


@functools.cache
def by_name() -> dict[str, Entry]:
    """Each by its name."""
    return {entry.name: entry for entry in entries()}
