"""Read and write `onnxgate.lock`: TOML that is easy to review, with the same bytes for the same lock."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from onnxgate.core.errors import LockError, StorageError, locate_errors
from onnxgate.core.files import replace_atomically
from onnxgate.core.machine_faults import find_machine_fault
from onnxgate.core.text import lower_first
from onnxgate.project.engines import (
    REQUIRED_DEPENDENCIES,
    extension_problem,
    is_library,
    is_satisfied,
    package_name,
    runs_on_node,
)
from onnxgate.project.git.repository import run_git
from onnxgate.project.lock.types import (
    VERSION,
    Lock,
    LockedModel,
    LockedPackage,
    LockedRuntime,
    NpmPackage,
)
from onnxgate.project.toml import TOMLDecodeError, decode, find_error_line, loads, quote_string

_CONFLICT_MARKER = re.compile(r"^(?:<{7}|>{7}|\|{7}) ", re.MULTILINE)
MAX_PROBLEMS = 10
_RECREATE_HINT = "delete it and run `onnxgate lock`"


def load_lock(path: Path) -> Lock:
    """
    Load the lock from a file.

    Raises:
        LockError: the file is missing or invalid, or was written by a newer onnxgate.
    """
    with locate_errors(path):
        return parse_lock(read_lock(path), path.name, path.parent)


def _suggest_restoring(name: str, folder: Path | None) -> str:
    """Return the hint for a damaged lock. It names the committed lock only if there is one with other content."""
    if folder is not None:
        committed = run_git(folder, ["cat-file", "blob", f"HEAD:./{name}"], offline=True)
        if committed.returncode or committed.stdout == (folder / name).read_bytes():
            return _RECREATE_HINT
    return f"restore it (`git checkout HEAD -- {name}`), or {_RECREATE_HINT}"


def read_lock(path: Path) -> str:
    """
    Read the text of a lock.

    Raises:
        LockError: the file is missing, cannot be read, or is not valid UTF-8.
    """
    try:
        return decode(path.read_bytes())
    except FileNotFoundError as error:
        raise LockError(f"`{path.name}` does not exist", hint="run `onnxgate lock`") from error
    except OSError as error:
        if path.is_dir():
            hint = f"rename or remove the folder `{path.name}`, then run `onnxgate lock`"
        else:
            hint = f"check its permissions: `ls -l {path.name}`"
        raise LockError(f"cannot read `{path.name}`: {lower_first(error.strerror or str(error))}", hint=hint) from error
    except UnicodeDecodeError as error:
        hint = _suggest_restoring(path.name, path.parent)
        raise LockError(f"`{path.name}` is damaged: it is not valid UTF-8", hint=hint) from error


def parse_lock(text: str, name: str, folder: Path | None = None) -> Lock:
    """Parse the text of a lock. `name` is the file's name in errors; `folder` is None for the lock of a revision."""
    if conflict := _CONFLICT_MARKER.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        hint = f"use the file from one branch (`git checkout --ours -- {name}` or `--theirs`), then run `onnxgate lock`"
        raise LockError(f"`{name}` has merge conflict markers at line {line}", line=line, hint=hint)
    try:
        raw = loads(text)
        version = raw.get("version")
        if not isinstance(version, int):
            raise LockError(f"`{name}` is damaged: `version` is missing", hint=_suggest_restoring(name, folder))
        if version > VERSION:
            problem = f"`{name}` has format version {version}; this version of onnxgate reads up to {VERSION}"
            raise LockError(problem, hint="upgrade onnxgate")
        lock = msgspec.convert(raw, Lock, strict=True)
    except (TOMLDecodeError, msgspec.ValidationError) as error:
        line = find_error_line(error, text) if isinstance(error, TOMLDecodeError) else 0
        raise LockError(
            f"`{name}` is damaged: {lower_first(str(error))}", line=line, hint=_suggest_restoring(name, folder)
        ) from error
    problems = tuple(find_lock_problems(lock))
    if len(problems) == 1:
        raise LockError(f"`{name}` is damaged: {problems[0]}", hint=_suggest_restoring(name, folder))
    if problems:
        more = (f"and {len(problems) - MAX_PROBLEMS} more",) if len(problems) > MAX_PROBLEMS else ()
        shown = (*problems[:MAX_PROBLEMS], *more)
        raise LockError(
            f"`{name}` is damaged in {len(problems)} places", problems=shown, hint=_suggest_restoring(name, folder)
        )
    return lock


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


NPM_INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_FORMATS: dict[str, Callable[[str], object]] = {
    "normalized package name": re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch,
    "version": _is_version,
    "Python minor version": re.compile(r"[0-9]{1,3}\.[0-9]{1,3}").fullmatch,
    "SHA-512 integrity hash": NPM_INTEGRITY.fullmatch,
    "SHA-256": re.compile(r"[0-9a-f]{64}").fullmatch,
}
"""Maps the name of each format to a function that checks whether a text has this format."""


def _check_format(text: str, name: str) -> Iterator[str]:
    if not _FORMATS[name](text):
        yield f"`{text}` is not a valid {name}"


def _check_release(name: str, version: str) -> Iterator[str]:
    yield from _check_format(name, "normalized package name")
    yield from _check_format(version, "version")


def find_lock_problems(lock: Lock) -> Iterator[str]:
    """Yield a message for each value that onnxgate never writes."""
    for name, target in lock.targets.items():
        for runtime in target.runtimes:
            yield from (f"target `{name}`, {runtime.name}: {problem}" for problem in _runtime_problems(runtime))
    if lock.toolchain is not None:
        problems = _check_format(lock.toolchain.python, "Python minor version")
        yield from (f"toolchain: {problem}" for problem in problems)
    for path, model in lock.models.items():
        yield from (f"model `{path}`: {problem}" for problem in _model_problems(model))
    for package in lock.packages:
        yield from (f"package `{package.name}`: {problem}" for problem in _package_problems(package))
    for npm in lock.npm:
        problems = chain(_check_release(npm.name, npm.version), _check_format(npm.integrity, "SHA-512 integrity hash"))
        yield from (f"npm package `{npm.name}`: {problem}" for problem in problems)


def _runtime_problems(runtime: LockedRuntime) -> Iterator[str]:
    yield from _check_release(runtime.engine, runtime.release)
    names = [pin.partition("==")[0] for pin in runtime.packages]
    yield from (f"`{name}` is pinned more than once" for name in sorted({n for n in names if names.count(n) > 1}))
    for pin in runtime.packages:
        name, _, version = pin.partition("==")
        if any(_check_release(name, version)):
            yield f"`{pin}` does not pin an exact version"
    pins = dict(pin.split("==", 1) for pin in runtime.packages if "==" in pin)
    for text in runtime.extensions:
        if problem := extension_problem(text):
            yield f"extension `{text}`: {problem}"
        elif not is_library(text) and not is_satisfied(text, pins.get(package_name(text), "")):
            yield f"extension `{text}` is not pinned in `packages`"
    if runtime.environment:
        return
    if f"{runtime.engine}=={runtime.release}" not in runtime.packages:  # nothing else is installed
        yield f"`packages` does not contain `{runtime.engine}=={runtime.release}`"
    needed = REQUIRED_DEPENDENCIES.get(runtime.engine, ())
    yield from (f"`{name}` is not pinned in `packages`" for name in needed if name not in names)
    if not runs_on_node(runtime.engine):
        yield from _check_format(runtime.python, "Python minor version")
    elif runtime.python:
        yield f"`{runtime.engine}` runs without Python, but `python` is `{runtime.python}`"


def _model_problems(model: LockedModel) -> Iterator[str]:
    yield from _check_format(model.sha256, "SHA-256")
    for data in model.external:
        yield from (f"data file `{data.location}`: {problem}" for problem in _check_format(data.sha256, "SHA-256"))
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
    yield from _check_release(package.name, package.version)
    yield from _check_format(package.python, "Python minor version")
    for wheel in package.wheels:
        if not wheel.file.endswith(".whl") or "/" in wheel.file or "\\" in wheel.file:
            yield f"`{wheel.file}` is not a wheel file name"
        yield from (f"`{wheel.file}`: {problem}" for problem in _check_format(wheel.sha256, "SHA-256"))


HEADER = "# Written by `onnxgate lock`, to be committed and reviewed. Not to be edited by hand.\n"
_OMITTED_IF_EMPTY = ("producer", "function-opsets", "inputs", "outputs", "metadata-keys", "external")


def write_lock(lock: Lock, path: Path) -> bool:
    """Replace the lock atomically; return False if the file already has this content."""
    data = render_lock(lock).encode()
    path = path.resolve()
    if path.is_file() and path.read_bytes() == data:
        return False
    try:
        with replace_atomically(path) as scratch:
            scratch.write_bytes(data)
    except OSError as error:
        fault = find_machine_fault(error)
        message = fault.message if fault else f"cannot write to `{path}`: {error.strerror or error}"
        hint = fault.hint if fault else "check the permissions of the folder that contains the lock"
        unchanged = "; the old lock is unchanged" if path.exists() else ""
        raise StorageError(f"{message}{unchanged}", hint=hint) from error
    return True


def render_lock(lock: Lock) -> str:
    """Return the text of a lock. Tables are sorted; each input, output, runtime and wheel has its own line."""
    tables = [f"{HEADER}{_render_pairs({'version': lock.version, 'revision': lock.revision})}"]
    for name, target in sorted(lock.targets.items()):
        order = sorted(target.runtimes, key=lambda runtime: (runtime.engine, Version(runtime.release), runtime.python))
        resolved = {"resolved": target.resolved} if target.resolved else {}
        rows = _MultilineArray(map(_to_toml_values, order))
        tables.append(_render_table({"policy": target.policy, **resolved, "runtimes": rows}, "targets", name))
    if toolchain := lock.toolchain:
        tables.append(_render_table({"policy": toolchain.policy, "python": toolchain.python}, "toolchain"))
        tables.append(_render_table(dict(sorted(toolchain.packages.items())), "toolchain", "packages"))
    for path, model in sorted(lock.models.items()):
        tables += _render_model(path, model)
    for package in sorted(lock.packages, key=_package_sort_key):
        wheels = _MultilineArray(map(_to_toml_values, sorted(package.wheels, key=lambda wheel: wheel.file)))
        tables.append(f"[[packages]]\n{_render_pairs({**_to_toml_values(package), 'wheels': wheels})}")
    npm = sorted(lock.npm, key=_package_sort_key)
    tables += [f"[[npm]]\n{_render_pairs(_to_toml_values(package))}" for package in npm]
    return "\n".join(tables)


def _package_sort_key(package: LockedPackage | NpmPackage) -> tuple[str, Version, Version]:
    return (package.name, Version(package.version), Version(package.python or "0"))


def _render_model(path: str, model: LockedModel) -> Iterator[str]:
    values = {
        **_to_toml_values(model),
        "opsets": dict(sorted(model.opsets.items())),
        "function-opsets": dict(sorted(model.function_opsets.items())),
        "inputs": _MultilineArray(map(_to_toml_values, model.inputs)),
        "outputs": _MultilineArray(map(_to_toml_values, model.outputs)),
        "metadata-keys": sorted(model.metadata_keys),
        "external": _MultilineArray(map(_to_toml_values, sorted(model.external))),
    }
    tables = {name: values.pop(name, {}) for name in ("operators", "tolerance", "quantization")}
    pairs = {key: value for key, value in values.items() if value or key not in _OMITTED_IF_EMPTY}
    yield _render_table(pairs, "models", path)
    for name, table in tables.items():
        if table:
            yield _render_table(dict(sorted(table.items())), "models", path, name)


class _MultilineArray(list[Any]):
    """A TOML array with one line per element."""


def _to_toml_values(value: object) -> dict[str, Any]:
    """Return a struct's values in the order of its fields, except None."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {key: value for key, value in fields.items() if value is not None}


def _render_table(values: Mapping[str, Any], *keys: str) -> str:
    return f"[{'.'.join(map(_render_key, keys))}]\n{_render_pairs(values)}"


def _render_pairs(values: Mapping[str, Any]) -> str:
    return "".join(f"{_render_key(key)} = {_render_value(value)}\n" for key, value in values.items())


def _render_value(value: object) -> str:
    match value:
        case str():
            return quote_string(value)
        case _MultilineArray():
            return "[\n" + "".join(f"  {_render_value(row)},\n" for row in value) + "]" if value else "[]"
        case Mapping():
            pairs = ", ".join(f"{_render_key(key)} = {_render_value(element)}" for key, element in value.items())
            return f"{{ {pairs} }}" if value else "{}"
        case list() | tuple():
            return f"[{', '.join(map(_render_value, value))}]"
        case _:
            return repr(value)  # integers and floats have the same syntax in TOML and Python


def _render_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quote_string(key)
