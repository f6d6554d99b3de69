"""Names in the config that only the models can confirm: their axes and their outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from onnxgate.config.globs import matches
from onnxgate.config.lines import key_path
from onnxgate.config.project import Project
from onnxgate.config.spelling import listed, nearest
from onnxgate.config.types import Tolerance

SPELL = "spell it as the model does; a size or a tolerance that means nothing is not tried"
"""What to do about a name that no model has."""


@dataclass(frozen=True, slots=True)
class Names:
    """What one model calls its dynamic axes (one without a name is spelled `x[1]`) and its outputs."""

    axes: Collection[str]
    outputs: Collection[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """A name that the config asks for. `where` is its line and key: "line 30: `model[1].sizes.batch`"."""

    where: str
    kind: Literal["dynamic axis", "output"]
    name: str


@dataclass(frozen=True, slots=True)
class EntryNames:
    """One `[[model]]` entry: what it asks for, and what the models that it matches have."""

    asked: tuple[Asked, ...]
    axes: frozenset[str]
    outputs: frozenset[str]
    whole: bool  # all that it matches are known

    def unknown(self) -> Iterator[str]:
        """A problem per name that none of the models has; none where one is not known: that one may have it."""
        for each in self.asked if self.whole else ():
            known = self.axes if each.kind == "dynamic axis" else self.outputs
            if each.name not in known:
                near = nearest(each.name, sorted(known)) or (f"; there is {listed(sorted(known))}" if known else "")
                yield f"{each.where}: no {each.kind} is called `{each.name}`{near}"


def unknown_names(project: Project, known: Mapping[str, Names]) -> tuple[str, ...]:
    """
    Names below `sizes` and `tolerance` that no model of their `[[model]]` entry has, as problems of the config.

    `known` has the names by the model's path. An entry that matches a model that is not there is not judged: that one
    may have the name.
    """
    paths = [model.path for model in project.models()]
    return tuple(problem for each in entry_names(project, known, paths) for problem in each.unknown())


def entry_names(project: Project, known: Mapping[str, Names], paths: Collection[str]) -> tuple[EntryNames, ...]:
    """The names of each `[[model]]` entry, as far as the models of `paths` confirm them."""
    found = []
    for index, entry in enumerate(project.config.model):
        matched = [path for path in paths if matches(entry.path, path)]
        read = [known[path] for path in matched if path in known]
        names = EntryNames(
            asked=tuple(_asked(project, index)),
            axes=frozenset(name for each in read for name in each.axes),
            outputs=frozenset(name for each in read for name in each.outputs),
            whole=len(read) == len(matched),
        )
        found.append(names)
    return tuple(found)


def _asked(project: Project, index: int) -> Iterator[Asked]:
    entry = project.config.model[index]
    for name in entry.sizes or ():
        yield Asked(_where(project, ("model", str(index), "sizes", name)), "dynamic axis", name)
    for name, value in (entry.tolerance or {}).items():
        if isinstance(value, Tolerance):
            yield Asked(_where(project, ("model", str(index), "tolerance", name)), "output", name)


def _where(project: Project, keys: tuple[str, ...]) -> str:
    return f"line {project.place(*keys).line}: `{key_path((*project.prefix, *keys))}`"
