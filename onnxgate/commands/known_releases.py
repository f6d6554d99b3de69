"""Select releases with support data by a requirement such as `onnxruntime>=1.18`."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from onnxgate import __version__
from onnxgate.core.errors import UsageError
from onnxgate.core.text import join_quoted
from onnxgate.project.engines import is_misspelled, suggest_requirement
from onnxgate.support import limits


def find_known_releases(requirement: str | None, named_engine: str = "") -> tuple[str, tuple[str, ...]]:
    """Return an engine and its releases that have support data and match the requirement, in ascending order.

    Without a requirement, these are all releases of `named_engine`, or of ONNX Runtime if no engine is named.

    Raises:
        UsageError: the requirement is not valid or about another engine than `named_engine`, the engine has no support
            data, or no known release matches.
    """
    default = named_engine or limits.load_limit_table().engine
    if requirement is not None and (meant := suggest_requirement(requirement)):
        raise UsageError(f"`{requirement}` is not a valid requirement", hint=f"did you mean `{meant}`?")
    text = default if requirement is None else requirement
    try:
        parsed = Requirement(text)
    except InvalidRequirement as error:
        hint = "for example `onnxruntime>=1.18,<1.32`"
        raise UsageError(f"`{text}` is not a valid requirement", hint=hint) from error
    if parsed.url or parsed.marker or parsed.extras:
        part = "a URL" if parsed.url else "a marker" if parsed.marker else "an extra"
        hint = f"for example `{parsed.name}{parsed.specifier or '>=1.18'}`"
        raise UsageError(f"`{requirement}` contains {part}, which selects no releases", hint=hint)
    engine, engines = canonicalize_name(parsed.name), limits.list_table_engines()
    if engine not in engines:
        message = f"onnxgate has no support data for `{parsed.name}`"
        if meant := next((name for name in engines if is_misspelled(engine, name)), ""):
            raise UsageError(message, hint=f"did you mean `{meant}{parsed.specifier}`?")
        raise UsageError(message, hint=f"engines with support data: {join_quoted(engines)}")
    if named_engine and canonicalize_name(named_engine) != engine:
        if requirement is None:
            raise UsageError(f"`{named_engine}` is not the name of an engine", hint=f"for example `{engine}`")
        raise UsageError(f"`--runtime` is about {engine}, but `--engine` is {named_engine}", hint="omit `--engine`")
    releases = limits.load_limit_table(engine).releases
    fitting = tuple(release for release in releases if parsed.specifier.contains(release))
    if not fitting:
        first, *_, last = releases
        pinned = next((it.version for it in parsed.specifier if it.operator == "=="), "")
        if pinned and _is_between(pinned, first, last):
            raise UsageError(f"no known release matches `{requirement}`", hint=list_near_releases(pinned, releases))
        known = f"onnxgate {__version__} has support data for {engine} {first}–{last}"
        hint = f"{known}; for newer releases, update onnxgate or use a config (`onnxgate init`)"
        raise UsageError(f"no known release matches `{requirement}`", hint=hint)
    return engine, fitting


def _is_between(release: str, first: str, last: str) -> bool:
    """Return whether a release is between two others; False if it is not a version."""
    try:
        return Version(first) < Version(release) < Version(last)
    except InvalidVersion:
        return False


def list_near_releases(release: str, known: Iterable[str]) -> str:
    """Return a hint with the known releases of the same minor version, or the range of all known ones."""
    known = tuple(known)
    try:
        minor = ".".join(str(Version(release)).split(".")[:2])
    except InvalidVersion:
        minor = ""
    near = [it for it in known if minor and it.startswith(f"{minor}.")]
    return f"known releases of {minor}: {', '.join(near)}" if near else f"known releases: {known[0]}–{known[-1]}"
