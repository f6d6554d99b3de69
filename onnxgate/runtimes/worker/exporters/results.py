"""What every exporter's answer has: the empty result, versions, and the finish of a file that was written."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, List, Sequence

from . import stamp, traces
from .source import folders_of

Wire = Dict[str, Any]


def nothing() -> Wire:
    """An `ExportResult` of which nothing is known yet."""
    return {
        "kind": "export",
        "model": None,
        "failure": None,
        "packages": {},
        "was_training": False,
        "input_names": [],
        "sample": [],
        "eager": [],
        "eager64": [],
        "eager_reason": "",
        "log": "",
    }


def versions(names: Sequence[str]) -> Dict[str, str]:
    """Those of the packages that are there, with their versions."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def finish(path: str, job: Wire) -> List[str]:
    """Lower the stamp, take this machine's folders out, and give the names of the inputs."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    lowered = stamp.lower(model, job["ir_version_max"])
    if traces.make_relative(model, folders_of(job)) or lowered:
        onnx.save(model, path)
    return [each.name for each in model.graph.input]
