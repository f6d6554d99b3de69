"""What every exporter's answer has: the empty result, versions, and the finish of a file that was written."""

from __future__ import annotations

import importlib.util
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


class ConverterMissingError(Exception):
    """The toolchain has a framework and not what converts its models; the message says what to install."""


def need(title: str, converters: Sequence[str]) -> None:
    """Raise `ConverterMissingError` where one of the converters is not installed."""
    missing = [name for name in converters if importlib.util.find_spec(name) is None]
    if missing:
        text = "models of {} are exported with `{}`, which the toolchain has not: `pip install {}`"
        raise ConverterMissingError(text.format(title, "` and `".join(missing), " ".join(missing)))


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


def rename_outputs(graph: Any, names: Dict[str, str]) -> None:
    """Give outputs of a graph other names, everywhere in it."""
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                rename_outputs(inner, names)
