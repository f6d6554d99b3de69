"""Copies of onnxgate with modified support data, for the installed command to import."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from onnxgate.support import harvest
from onnxgate.support import operators as tables_operators
from onnxgate.support.operators import KernelRow, OperatorRows, Table
from tests.conftest import ROOT


def copy(folder: Path, shipped: Table, *, without_limits_of: str = "") -> Path:
    """Create a folder for `PYTHONPATH` with a copy of onnxgate that has the given support table."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "onnxgate", folder / "onnxgate", ignore=ignored)
    support = folder / "onnxgate" / "support"
    (support / tables_operators.name_kernel_table()).write_bytes(tables_operators.encode_table(shipped))
    limits = support / "data" / "onnxruntime-limits.json"
    content = json.loads(limits.read_text(encoding="utf-8"))
    content["releases"].pop(without_limits_of, None)
    limits.write_text(json.dumps(content), encoding="utf-8")
    return folder


def without(folder: Path, release: str) -> Path:
    """Create a copy without any data of one release."""
    shipped = tables_operators.load_shipped_table()
    others = [source.release for source in shipped.sources if source.release != release]
    return copy(folder, harvest.select_releases(shipped, others), without_limits_of=release)


def mistaken(folder: Path, operator: str, change: Callable[[KernelRow], KernelRow | None]) -> Path:
    """Create a copy with incorrect kernels of an `ai.onnx` operator; a kernel is removed if `change` returns None."""
    shipped = tables_operators.load_shipped_table()
    rows = msgspec.json.decode(shipped.operators["ai.onnx"][operator], type=OperatorRows)
    kernels = tuple(changed for kernel in rows.kernels if (changed := change(kernel)) is not None)
    wrong = msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(rows, kernels=kernels)))
    operators = {**shipped.operators, "ai.onnx": {**shipped.operators["ai.onnx"], operator: wrong}}
    return copy(folder, msgspec.structs.replace(shipped, operators=operators))
