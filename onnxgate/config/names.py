"""Names in the config that only the models can confirm: their axes and their outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from onnxgate.config.globs import matches
from onnxgate.config.lines import key_path
from onnxgate.config.project import Project
from onnxgate.config.spelling import listed, nearest
from onnxgate.config.types import Tolerance


@dataclass(frozen=True, slots=True)
class Names:
    """What one model calls its dynamic axes (one without a name is spelled `x[1]`) and its outputs."""

    axes: Collection[str]
    outputs: Collection[str]


def unknown_names(project: Project, known: Mapping[str, Names]) -> tuple[str, ...]:
    """
    Names below `sizes` and `tolerance` that no model of their `[[model]]` entry has, as problems of the config.

    `known` has the names by the model's path. An entry that matches a model that is not there is not judged: that one
    may have the name.
    """
    paths = [model.path for model in project.models()]
    problems: list[str] = []
    for index, entry in enumerate(project.config.model):
        matched = [path for path in paths if matches(entry.path, path)]
        if not all(path in known for path in matched):
            continue
        own = [name for name, value in (entry.tolerance or {}).items() if isinstance(value, Tolerance)]
        axes = {name for path in matched for name in known[path].axes}
        outputs = {name for path in matched for name in known[path].outputs}
        problems += _unknown(project, ("model", str(index), "sizes"), entry.sizes or (), axes, "dynamic axis")
        problems += _unknown(project, ("model", str(index), "tolerance"), own, outputs, "output")
    return tuple(problems)


def _unknown(
    project: Project, keys: tuple[str, ...], names: Collection[str], known: Collection[str], kind: str
) -> Iterator[str]:
    for name in names:
        if name not in known:
            near = nearest(name, sorted(known)) or (f"; there is {listed(sorted(known))}" if known else "")
            here = (*keys, name)
            where = f"line {project.place(*here).line}: `{key_path((*project.prefix, *here))}`"
            yield f"{where}: no {kind} is called `{name}`{near}"
