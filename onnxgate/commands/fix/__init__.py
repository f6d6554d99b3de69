"""Repair of model files: fixes propose changes, which are verified before the file is written."""

from __future__ import annotations

from onnxgate.commands.fix.fixes.external_data import ExternalData
from onnxgate.commands.fix.fixes.graph_interface import MissingTypes, Passthrough
from onnxgate.commands.fix.fixes.metadata import IrVersion, LeakedPaths, Opset
from onnxgate.commands.fix.proposals import Fix

FIXES: tuple[Fix, ...] = (ExternalData(), MissingTypes(), Opset(), IrVersion(), Passthrough(), LeakedPaths())
"""In the order in which they are tried: data first, since the others leave them alone; types before a conversion, which
would write them itself; the IR version after what may need a newer one."""
