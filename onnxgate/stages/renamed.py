"""Which models of a revision are gone, and which of today's they became. What is not sure is no rename."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence

from onnxgate.baseline.renames import Newcomer, moved, same_name, similar
from onnxgate.baseline.revisions import FILES, AbsentError
from onnxgate.config.globs import covers, is_glob, matches
from onnxgate.config.project import Project
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.stages.past import BrokenError, Past

SUFFIX = ".onnx"
ALL_BUT_THE_SAME = 90
"""So alike (per cent, as git counts) are files of which one was made from the other, whatever their inputs are."""


def renamed(
    past: Past, gone: Sequence[str], newcomers: Sequence[Newcomer], facts: Mapping[str, ModelFacts], remarks: list[str]
) -> dict[str, str]:
    """Today's path -> what it was called. First by content; of others, where name or likeness and interface agree.

    All newcomers of the project take part, be they asked for or not; `facts` are of those that can be read.
    """

    def has_same_data(each: Newcomer, path: str) -> bool:
        return each.path in facts and past.is_same(path, each.file, facts[each.path])

    found = moved(past.tree, gone, newcomers, has_same_data)
    rest = [each for each in newcomers if each.path not in found]
    left = [path for path in gone if path not in found.values()]
    alike = similar(past.tree, left, rest) if rest and left else {}
    guesses = {**{path: (before, 0) for path, before in same_name(left, rest).items()}, **alike}
    for path, (before, percent) in sorted(guesses.items()):
        if path not in facts or before in found.values():
            continue
        if _is_heir(past, before, facts[path], percent, remarks):
            found[path] = before
    return found


def gone_files(past: Past) -> list[str]:
    """Models of the revision, locked or not, of whatever project, whose files are no more."""
    root, lock = past.revision.root, past.own_lock
    locked = {posixpath.join(past.folder, path) for path in lock.models} if lock is not None else set()
    return [
        path
        for path, entry in past.tree.entries.items()
        if entry.mode in FILES
        if (path.endswith(SUFFIX) or path in locked) and not os.path.lexists(root / path)
    ]


def vanished(past: Past, project: Project, here: Collection[str]) -> Iterator[str]:
    """The project's models that are no longer among its models; `here` are today's paths, relative to git's root."""
    lock = past.own_lock
    locked = lock.models.keys() if lock is not None else set()
    for path, entry in past.tree.entries.items():
        name = past.relative(path)
        if entry.mode in FILES and path not in here and (name in locked or _would_be_model(project, name)):
            yield path


def _would_be_model(project: Project, name: str) -> bool:
    """Whether today's config would take a file for a model."""
    patterns, excluded = project.config.models, project.config.exclude
    if name.startswith("../") or any(covers(each, name) for each in excluded):
        return False
    return name.endswith(SUFFIX) if patterns is None else any(_takes(each, name) for each in patterns)


def _takes(pattern: str, name: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    if not is_glob(pattern):
        return name == pattern or (name.startswith(f"{pattern}/") and name.endswith(SUFFIX))
    return matches(pattern, name) and (not pattern.endswith("*") or name.endswith(SUFFIX))


def _is_heir(past: Past, path: str, after: ModelFacts, percent: int, remarks: list[str]) -> bool:
    held, at = f"{after.path}: held against nothing:", f"`{past.relative(path)}` at `{past.revision.name}`"
    try:
        before = past.facts(path)
    except BrokenError:
        return False
    except AbsentError as error:
        remarks.append(f"{held} whether it is {at} cannot be told: {error.reason}")
        return False
    if _kinds(before.inputs) == _kinds(after.inputs) and _kinds(before.outputs) == _kinds(after.outputs):
        return True
    if percent >= ALL_BUT_THE_SAME and _shares_names(before, after):
        return True
    remarks.append(f"{held} {at} may be what it was called, and their inputs or outputs are too different to tell")
    return False


def _kinds(values: Sequence[ValueInfo]) -> set[tuple[str, str, int | None]]:
    return {(each.name, each.type, None if each.shape is None else len(each.shape)) for each in values}


def _shares_names(before: ModelFacts, after: ModelFacts) -> bool:
    """Whether at least half of the inputs and outputs go by the same names."""
    then, now = _names(before), _names(after)
    return 2 * len(then & now) >= max(len(then), len(now))


def _names(facts: ModelFacts) -> set[tuple[str, str]]:
    return {*(("in", each.name) for each in facts.inputs), *(("out", each.name) for each in facts.outputs)}
