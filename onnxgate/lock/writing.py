"""Writes `onnxgate.lock`: TOML made to be read in a review; the same lock is the same bytes everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from onnxgate.config.spelled import string
from onnxgate.errors import StorageError
from onnxgate.lock.types import (
    Lock,
    LockedModel,
    LockedPackage,
    LockedRuntime,
    LockedTarget,
    LockedToolchain,
    NpmPackage,
)
from onnxgate.scratch import beside

NOT_WRITTEN = "make room, or see that its folder may be written; it is what it was"
HEADER = "# Written by `onnxgate lock`, to be committed and reviewed. Not to be edited by hand.\n"


_OPTIONAL = ("producer", "function-opsets", "inputs", "outputs", "metadata-keys", "external")


def render(lock: Lock) -> str:
    """The text of a lock: tables sorted, models by path, a line per input, output, runtime and wheel."""
    tables = [f"{HEADER}{_lines([('version', lock.version), ('revision', lock.revision)])}"]
    tables += [_target(name, target) for name, target in sorted(lock.targets.items())]
    if lock.toolchain is not None:
        tables.append(_toolchain(lock.toolchain))
    tables += [_model(path, model) for path, model in sorted(lock.models.items())]
    tables += [_package(package) for package in sorted(lock.packages, key=_package_order)]
    tables += [_npm(package) for package in sorted(lock.npm, key=lambda each: (each.name, Version(each.version)))]
    return "\n".join(tables)


def write_lock(lock: Lock, path: Path) -> bool:
    """Write the lock in one step, so that nobody reads a half; False where the file says that already."""
    data = render(lock).encode()
    path = path.resolve()
    if path.is_file() and path.read_bytes() == data:
        return False
    try:
        with beside(path) as scratch:
            scratch.write_bytes(data)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"`{path.name}` cannot be written: {reason}", hint=NOT_WRITTEN) from error
    return True


def _target(name: str, target: LockedTarget) -> str:
    runtimes = sorted(target.runtimes, key=_runtime_order)
    resolved = [("resolved", target.resolved)] if target.resolved else []
    rows = ("runtimes", _Rows(map(_plain, runtimes)))
    return _header("targets", name) + _lines([("policy", target.policy), *resolved, rows])


def _toolchain(toolchain: LockedToolchain) -> str:
    packages = dict(sorted(toolchain.packages.items()))
    head = _header("toolchain") + _lines([("policy", toolchain.policy), ("python", toolchain.python)])
    return head + "\n" + _header("toolchain", "packages") + _lines(packages.items())


def _model(path: str, model: LockedModel) -> str:
    values = {
        **_plain(model),
        "opsets": dict(sorted(model.opsets.items())),
        "function-opsets": dict(sorted(model.function_opsets.items())),
        "inputs": _Rows(map(_plain, model.inputs)),
        "outputs": _Rows(map(_plain, model.outputs)),
        "metadata-keys": sorted(model.metadata_keys),
        "external": _Rows(map(_plain, sorted(model.external))),
    }
    operators = dict(sorted(values.pop("operators", {}).items()))
    tolerance = dict(sorted(values.pop("tolerance", {}).items()))
    quantization = dict(sorted(values.pop("quantization", {}).items()))
    said = [(key, value) for key, value in values.items() if value or key not in _OPTIONAL]
    tables = [_header("models", path) + _lines(said)]
    for name, table in (("operators", operators), ("tolerance", tolerance), ("quantization", quantization)):
        if table:
            tables.append(_header("models", path, name) + _lines(table.items()))
    return "\n".join(tables)


def _package(package: LockedPackage) -> str:
    wheels = sorted(package.wheels, key=lambda wheel: wheel.file)
    values = {**_plain(package), "wheels": _Rows(map(_plain, wheels))}
    return "[[packages]]\n" + _lines(values.items())


def _npm(package: NpmPackage) -> str:
    return "[[npm]]\n" + _lines(_plain(package).items())


def _runtime_order(runtime: LockedRuntime) -> tuple[str, Version, str]:
    return (runtime.engine, Version(runtime.release), runtime.python)


def _package_order(package: LockedPackage) -> tuple[str, Version, Version]:
    return (package.name, Version(package.version), Version(package.python))


class _Rows(list[Any]):
    """An array that has a line for each element."""


def _plain(value: object) -> dict[str, Any]:
    """A struct as TOML has it: its keys in their order, and none that says nothing."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {key: value for key, value in fields.items() if value is not None}


def _header(*keys: str) -> str:
    return f"[{'.'.join(map(_key, keys))}]\n"


def _lines(values: Iterable[tuple[str, Any]]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values)


def _value(value: object) -> str:
    match value:
        case str():
            return string(value)
        case _Rows():
            return "[\n" + "".join(f"  {_value(row)},\n" for row in value) + "]" if value else "[]"
        case Mapping():
            return (
                f"{{ {', '.join(f'{_key(key)} = {_value(each)}' for key, each in value.items())} }}" if value else "{}"
            )
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return repr(value)  # integers and floats are spelled in TOML as in Python


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else string(key)
