"""Commits of which a shallow clone does not have the history: who their parents are, and how to get them."""

from __future__ import annotations

import re
from pathlib import Path

from onnxgate.baseline import git

ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""A commit by its full name: what may be taken from an event that somebody else wrote."""
_STEP = re.compile(r"\^(\d*)|~(\d*)")
_STEPS = re.compile(r"(?P<base>.*?)(?P<steps>(?:\^\d*|~\d*)+)")
FURTHEST = 50
"""No more commits than these are fetched one by one."""


def commit_of(root: Path, name: str) -> str:
    """The commit that git knows by a name; "" where there is none here."""
    found = git.words(root, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
    return found if is_here(root, found) else ""


def is_here(root: Path, commit: str) -> bool:
    """Whether a commit can be read."""
    return bool(commit) and git.ask(root, ["cat-file", "-e", f"{commit}^{{commit}}"], offline=True).returncode == 0


def is_shallow(root: Path) -> bool:
    """Whether the history is cut off somewhere."""
    return git.words(root, ["rev-parse", "--is-shallow-repository"]) == "true"


def parents(root: Path, commit: str) -> tuple[str, ...]:
    """Those that a commit names, be they here or not: a shallow clone's own `HEAD^1` means nothing."""
    header = git.words(root, ["cat-file", "commit", commit]).partition("\n\n")[0]
    found = (line.partition(" ")[2] for line in header.splitlines() if line.startswith("parent "))
    return tuple(parent for parent in found if ID.fullmatch(parent))


def obtained(root: Path, commit: str, *, offline: bool) -> str:
    """Why a commit cannot be had; "" where it is here, or was fetched.

    Only a clone that is shallow already is fetched into with a depth: it would cut off the history of another.
    """
    if is_here(root, commit):
        return ""
    if offline:
        return "it is not here, and nothing may be fetched"
    remote = _remote(root)
    if not remote:
        return "it is not here, and there is no remote to fetch it from"
    depth = ["--depth=1"] if is_shallow(root) else []
    quiet = ["-c", "gc.auto=0", "-c", "maintenance.auto=false", "fetch", "--quiet", "--no-tags"]
    done = git.ask(root, [*quiet, "--no-recurse-submodules", "--no-write-fetch-head", *depth, remote, commit])
    if is_here(root, commit):
        return ""
    return f"it is not here, and cannot be fetched from `{remote}`: {git.last_line(done.stderr)}"


def commit_in_common(root: Path, one: str, other: str) -> str:
    """The newest commit that both histories have; "" where none is here."""
    return git.words(root, ["merge-base", one, other]).partition("\n")[0]


def walked(root: Path, name: str, *, offline: bool) -> tuple[str, str]:
    """The commit that a name such as `HEAD^1` or `HEAD~2` means where a shallow clone ends before it; or why none."""
    match = _STEPS.fullmatch(name)
    commit = commit_of(root, (match["base"] or "HEAD").replace("@", "HEAD") if match else "")
    if match is None or not commit:
        return "", ""
    numbers = _numbers(match["steps"])
    if len(numbers) > FURTHEST:
        return "", f"it lies more than {FURTHEST} commits back, and is not here"
    for number in numbers:
        found = parents(root, commit)
        if number > len(found):
            return "", f"`{commit[:12]}` has {len(found)} parent{'s' if len(found) != 1 else ''}"
        commit = found[number - 1]
        if why := obtained(root, commit, offline=offline):
            return "", f"it is `{commit[:12]}`: {why}"
    return commit, ""


def _numbers(steps: str) -> list[int]:
    """Which parent each step goes to: `^2~2` is the second, its first, and that one's first."""
    numbers: list[int] = []
    for step in _STEP.finditer(steps):
        if step[1] is None:
            numbers += [1] * min(int(step[2] or 1), FURTHEST + 1)
        elif step[1] != "0":  # itself
            numbers.append(int(step[1] or 1))
    return numbers


def _remote(root: Path) -> str:
    names = git.words(root, ["remote"]).splitlines()
    return "origin" if "origin" in names else names[0] if len(names) == 1 else ""
