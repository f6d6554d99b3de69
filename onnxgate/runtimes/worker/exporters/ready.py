"""What the first export of a process takes longer for than those that follow, done ahead of it."""

from __future__ import annotations

import importlib
import io
from typing import Any, Callable, Dict

from .. import versions
from .dispatch import PREPARED
from .failure import flush


def probe(job: Dict[str, Any], phase: Callable[[str], None]) -> Dict[str, Any]:
    """Versions, once each exporter asked for is ready; one that cannot be is left for the export to say why."""
    for name in (*PREPARED, *job["exporters"]):
        phase("import of " + name)
        try:
            importlib.import_module(name)
            _EXPORTS.get(name, _nothing)()
        except Exception:  # noqa: BLE001 - nothing was asked for yet
            pass
    flush()
    return versions.probe(job, phase)


def _nothing() -> None:
    return None


def _export_pytorch() -> None:
    """The exporter finds its operators when it is first used. Source: torch 2.13, 1.9 s of 2.4 s on one small model."""
    import torch

    torch.onnx.export(torch.nn.Identity(), (torch.zeros(1),), io.BytesIO(), dynamo=True, verbose=False)


_EXPORTS = {"torch": _export_pytorch}
