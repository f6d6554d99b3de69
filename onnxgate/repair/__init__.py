"""Repairs of a model's file, one fix per file: each says what it would change, and changes nothing itself."""

from __future__ import annotations

from onnxgate.repair.external_data import ExternalData
from onnxgate.repair.fix import Asked, Bounds, Change, Fix, Left
from onnxgate.repair.ir_version import IrVersion
from onnxgate.repair.leaked_paths import LeakedPaths
from onnxgate.repair.missing_types import MissingTypes
from onnxgate.repair.opset import Opset
from onnxgate.repair.passthrough import Passthrough

__all__ = ["FIXES", "Asked", "Bounds", "Change", "Fix", "Left"]

FIXES: tuple[Fix, ...] = (ExternalData(), MissingTypes(), Opset(), IrVersion(), Passthrough(), LeakedPaths())
"""In the order in which they are tried: data first, since the others leave them alone; types before a conversion, which
would write them itself; a stamp after what may need a newer one."""
