"""Parts of every exporter's result: the empty result, versions, and the final changes to the written file."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Dict, List, Match, Sequence

from . import ir_version, opsets
from .source import folders_of, project_path

Wire = Dict[str, Any]


def empty_result() -> Wire:
    """Return an `ExportResult` without values."""
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
    """The toolchain has a framework but not its converter; the message names the package to install."""


def require_converters(title: str, converters: Sequence[str]) -> None:
    """Raise `ConverterMissingError` if one of the converters is not installed."""
    missing = [name for name in converters if importlib.util.find_spec(name) is None]
    if missing:
        text = "models of {} are exported with `{}`, which the toolchain has not: `pip install {}`"
        raise ConverterMissingError(text.format(title, "` and `".join(missing), " ".join(missing)))


def installed_versions(names: Sequence[str]) -> Dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


def finish_model(path: str, job: Wire) -> List[str]:
    """Set IR and `ai.onnx.ml` version for the job, remove this machine's folders, and return the inputs' names."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    changed = opsets.raise_ml_opset(model, job.get("opset_ml"))
    changed = ir_version.lower_ir_version(model, job["ir_version_max"]) or changed
    if make_traces_relative(model, folders_of(job)) or changed:
        onnx.save(model, path)
    return [each.name for each in model.graph.input]


def rename_outputs(graph: Any, names: Dict[str, str]) -> None:
    """Rename outputs of a graph, including all uses."""
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                rename_outputs(inner, names)


_STACK_TRACE_KEY = "pkg.torch.onnx.stack_trace"
"""Source: torch.onnx (dynamo=True) in torch 2.5 and later writes it into each node's metadata_props."""
_FRAME_FILE = re.compile(r'File "([^"\n]+)"')
_PACKAGES_FOLDER = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\]")


def make_traces_relative(model: Any, folders: Sequence[str]) -> bool:
    """Make file names relative to the project or to their packages. Return whether anything changed."""

    def relative(frame: Match[str]) -> str:
        return 'File "{}"'.format(project_path(frame[1], folders) or _PACKAGES_FOLDER.sub("", frame[1]))

    changed = False
    for node in opsets.iter_nodes(model):
        for entry in node.metadata_props:
            value = _FRAME_FILE.sub(relative, entry.value) if entry.key == _STACK_TRACE_KEY else entry.value
            changed = changed or value != entry.value
            entry.value = value
    return changed
