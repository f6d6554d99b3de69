"""Load and validate `onnxgate.lock`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from onnxgate.core.errors import LockError
from onnxgate.core.spelling import lower_first
from onnxgate.project.engines import (
    REQUIRED_DEPENDENCIES,
    extension_problem,
    is_library,
    is_satisfied,
    package_name,
    runs_on_node,
)
from onnxgate.project.lock.types import VERSION, Lock, LockedModel, LockedPackage, LockedRuntime, NpmPackage
from onnxgate.project.toml import TOMLDecodeError, decode, loads

_CONFLICT_MARKER = re.compile(r"^(?:<{7}|>{7}|\|{7}) ", re.MULTILINE)
MAX_PROBLEMS = 10
_LOCK_HINT = "run `onnxgate lock`"
_REGENERATE_HINT = "take the file of one branch (`git checkout --ours` or `--theirs`), then run `onnxgate lock`"

_RESTORE_HINT = "restore the file as it was committed, then run `onnxgate lock`"


def load_lock(path: Path) -> Lock:
    """
    Return the lock in one file.

    Raises:
        LockError: the file is missing or invalid, or was written by a newer onnxgate.
    """
    return parse_lock(read_lock(path), path.name)


def read_lock(path: Path) -> str:
    """
    Return the text of a lock.

    Raises:
        LockError: the file is missing, cannot be read, or is not UTF-8.
    """
    try:
        return decode(path.read_bytes())
    except FileNotFoundError as error:
        raise LockError(f"there is no `{path.name}`", hint=_LOCK_HINT) from error
    except OSError as error:
        hint = f"see that whoever runs onnxgate may read it: `ls -l {path.name}`"
        raise LockError(f"`{path.name}` cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise LockError(f"`{path.name}` is damaged: it is not UTF-8", hint=_REGENERATE_HINT) from error


def parse_lock(text: str, name: str) -> Lock:
    """Return the lock in a text; `name` is the file's name in errors."""
    if conflict := _CONFLICT_MARKER.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise LockError(f"`{name}` has the marks of a merge conflict at line {line}", hint=_REGENERATE_HINT)
    try:
        raw = loads(text)
    except TOMLDecodeError as error:
        raise LockError(f"`{name}` is damaged: {lower_first(str(error))}", hint=_REGENERATE_HINT) from error
    _check_version(raw, name)
    try:
        lock = msgspec.convert(raw, Lock, strict=True)
    except msgspec.ValidationError as error:
        raise LockError(f"`{name}` is damaged: {lower_first(str(error))}", hint=_REGENERATE_HINT) from error
    _check_values(lock, name)
    return lock


def _check_version(raw: dict[str, Any], name: str) -> None:
    version = raw.get("version")
    if not isinstance(version, int):
        raise LockError(f"`{name}` is damaged: it has no `version`", hint=_REGENERATE_HINT)
    if version > VERSION:
        raise LockError(f"`{name}` has version {version}; this onnxgate reads up to {VERSION}", hint="upgrade onnxgate")


def _check_values(lock: Lock, name: str) -> None:
    problems = tuple(find_lock_problems(lock))
    if len(problems) == 1:
        raise LockError(f"`{name}` is damaged: {problems[0]}", hint=_RESTORE_HINT)
    if problems:
        more = (f"and {len(problems) - MAX_PROBLEMS} more",) if len(problems) > MAX_PROBLEMS else ()
        shown = (*problems[:MAX_PROBLEMS], *more)
        raise LockError(f"`{name}` is damaged in {len(problems)} places", problems=shown, hint=_RESTORE_HINT)


_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PYTHON = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
NPM_INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def find_lock_problems(lock: Lock) -> Iterator[str]:
    """Yield a sentence for each value that onnxgate would not write."""
    for name, target in lock.targets.items():
        for runtime in target.runtimes:
            yield from (f"target `{name}`, {runtime.name}: {problem}" for problem in _runtime_problems(runtime))
    if lock.toolchain is not None:
        yield from (f"toolchain: {problem}" for problem in _python_problems(lock.toolchain.python))
    for path, model in lock.models.items():
        yield from (f"model `{path}`: {problem}" for problem in _model_problems(model))
    for package in lock.packages:
        yield from (f"package `{package.name}`: {problem}" for problem in _package_problems(package))
    for npm_package in lock.npm:
        yield from (f"package `{npm_package.name}` of npm: {problem}" for problem in _npm_problems(npm_package))


def _runtime_problems(runtime: LockedRuntime) -> Iterator[str]:
    yield from _name_problems(runtime.engine)
    yield from _version_problems(runtime.release)
    yield from _pin_problems(runtime)
    yield from _extension_problems(runtime)
    if runtime.environment:
        return
    yield from _dependency_problems(runtime)
    if not runs_on_node(runtime.engine):
        yield from _python_problems(runtime.python)
    elif runtime.python:
        yield f"`{runtime.engine}` has no Python, and `{runtime.python}` is said"


def _pin_problems(runtime: LockedRuntime) -> Iterator[str]:
    names = _pinned_names(runtime)
    repeated = sorted({name for name in names if names.count(name) > 1})
    yield from (f"`{name}` is pinned more than once" for name in repeated)
    for pin in runtime.packages:
        name, _, version = pin.partition("==")
        if [*_name_problems(name), *_version_problems(version)]:
            yield f"`{pin}` is no exact pin"


def _dependency_problems(runtime: LockedRuntime) -> Iterator[str]:
    """Yield missing pins of the engine and of what it needs: a locked environment contains only the pins."""
    own = f"{runtime.engine}=={runtime.release}"
    if own not in runtime.packages:
        yield f"its packages do not have `{own}`"
    needed = REQUIRED_DEPENDENCIES.get(runtime.engine, ())
    yield from (f"its packages do not pin `{name}`" for name in needed if name not in _pinned_names(runtime))


def _extension_problems(runtime: LockedRuntime) -> Iterator[str]:
    """Yield problems of extensions, which are libraries or requirements that a pin satisfies."""
    pins = dict(pin.split("==", 1) for pin in runtime.packages if "==" in pin)
    for text in runtime.extensions:
        if problem := extension_problem(text):
            yield f"extension `{text}`: {problem}"
        elif not is_library(text) and not is_satisfied(text, pins.get(package_name(text), "")):
            yield f"its packages do not pin its extension `{text}`"


def _pinned_names(runtime: LockedRuntime) -> list[str]:
    return [pin.partition("==")[0] for pin in runtime.packages]


def _model_problems(model: LockedModel) -> Iterator[str]:
    yield from _sha256_problems(model.sha256)
    for data in model.external:
        yield from (f"data file `{data.location}`: {problem}" for problem in _sha256_problems(data.sha256))
    for output, measured in model.tolerance.items():
        for what, value in (("noise", measured.noise), ("bound", measured.bound)):
            if not math.isfinite(value) or value < 0:
                yield f"the {what} of output `{output}` is {value}"
    for output, quality in model.quantization.items():
        limits = (("sqnr-db", quality.sqnr_db, 200), ("cosine", quality.cosine, 1), ("top1", quality.top1, 1))
        for metric, value, limit in limits:
            if not -limit <= value <= limit:
                yield f"the {metric} of output `{output}` is {value}"


def _package_problems(package: LockedPackage) -> Iterator[str]:
    yield from _name_problems(package.name)
    yield from _version_problems(package.version)
    yield from _python_problems(package.python)
    for wheel in package.wheels:
        if not wheel.file.endswith(".whl") or "/" in wheel.file or "\\" in wheel.file:
            yield f"`{wheel.file}` is no name of a wheel"
        yield from (f"`{wheel.file}`: {problem}" for problem in _sha256_problems(wheel.sha256))


def _npm_problems(package: NpmPackage) -> Iterator[str]:
    yield from _name_problems(package.name)
    yield from _version_problems(package.version)
    if not NPM_INTEGRITY.fullmatch(package.integrity):
        yield f"`{package.integrity}` is no integrity by sha512"


def _name_problems(text: str) -> Iterator[str]:
    if not _NAME.fullmatch(text):
        yield f"`{text}` is no normalised name of a package"


def _version_problems(text: str) -> Iterator[str]:
    try:
        Version(text)
    except InvalidVersion:
        yield f"`{text}` is no version"


def _python_problems(text: str) -> Iterator[str]:
    if not _PYTHON.fullmatch(text):
        yield f"`{text}` is no minor version of Python"


def _sha256_problems(text: str) -> Iterator[str]:
    if not _SHA256.fullmatch(text):
        yield f"`{text}` is no sha256"
