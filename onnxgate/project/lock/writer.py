"""Write `onnxgate.lock`: TOML that is easy to review, with the same bytes for the same lock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from onnxgate.core.errors import StorageError
from onnxgate.core.files import replace_atomically
from onnxgate.project.lock.types import (
    Lock,
    LockedModel,
    LockedPackage,
    LockedRuntime,
    LockedTarget,
    LockedToolchain,
    NpmPackage,
)
from onnxgate.project.toml import quote_string

WRITE_FAILED_HINT = "make room, or see that its folder may be written; it is what it was"
HEADER = "# Written by `onnxgate lock`, to be committed and reviewed. Not to be edited by hand.\n"


_OMITTED_IF_EMPTY = ("producer", "function-opsets", "inputs", "outputs", "metadata-keys", "external")


def render_lock(lock: Lock) -> str:
    """Return the text of a lock: tables sorted, models by path, a line per input, output, runtime and wheel."""
    tables = [f"{HEADER}{_render_pairs([('version', lock.version), ('revision', lock.revision)])}"]
    tables += [_render_target(name, target) for name, target in sorted(lock.targets.items())]
    if lock.toolchain is not None:
        tables.append(_render_toolchain(lock.toolchain))
    tables += [_render_model(path, model) for path, model in sorted(lock.models.items())]
    tables += [_render_package(package) for package in sorted(lock.packages, key=_package_sort_key)]
    tables += [
        _render_npm_package(package)
        for package in sorted(lock.npm, key=lambda package: (package.name, Version(package.version)))
    ]
    return "\n".join(tables)


def write_lock(lock: Lock, path: Path) -> bool:
    """Replace the lock atomically; return False if the file has this content already."""
    data = render_lock(lock).encode()
    path = path.resolve()
    if path.is_file() and path.read_bytes() == data:
        return False
    try:
        with replace_atomically(path) as scratch:
            scratch.write_bytes(data)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"`{path.name}` cannot be written: {reason}", hint=WRITE_FAILED_HINT) from error
    return True


def _render_target(name: str, target: LockedTarget) -> str:
    runtimes = sorted(target.runtimes, key=_runtime_sort_key)
    resolved = [("resolved", target.resolved)] if target.resolved else []
    rows = ("runtimes", _MultilineArray(map(_to_toml_values, runtimes)))
    return _render_header("targets", name) + _render_pairs([("policy", target.policy), *resolved, rows])


def _render_toolchain(toolchain: LockedToolchain) -> str:
    packages = dict(sorted(toolchain.packages.items()))
    head = _render_header("toolchain") + _render_pairs([("policy", toolchain.policy), ("python", toolchain.python)])
    return head + "\n" + _render_header("toolchain", "packages") + _render_pairs(packages.items())


def _render_model(path: str, model: LockedModel) -> str:
    values = {
        **_to_toml_values(model),
        "opsets": dict(sorted(model.opsets.items())),
        "function-opsets": dict(sorted(model.function_opsets.items())),
        "inputs": _MultilineArray(map(_to_toml_values, model.inputs)),
        "outputs": _MultilineArray(map(_to_toml_values, model.outputs)),
        "metadata-keys": sorted(model.metadata_keys),
        "external": _MultilineArray(map(_to_toml_values, sorted(model.external))),
    }
    operators = dict(sorted(values.pop("operators", {}).items()))
    tolerance = dict(sorted(values.pop("tolerance", {}).items()))
    quantization = dict(sorted(values.pop("quantization", {}).items()))
    pairs = [(key, value) for key, value in values.items() if value or key not in _OMITTED_IF_EMPTY]
    tables = [_render_header("models", path) + _render_pairs(pairs)]
    for name, table in (("operators", operators), ("tolerance", tolerance), ("quantization", quantization)):
        if table:
            tables.append(_render_header("models", path, name) + _render_pairs(table.items()))
    return "\n".join(tables)


def _render_package(package: LockedPackage) -> str:
    wheels = sorted(package.wheels, key=lambda wheel: wheel.file)
    values = {**_to_toml_values(package), "wheels": _MultilineArray(map(_to_toml_values, wheels))}
    return "[[packages]]\n" + _render_pairs(values.items())


def _render_npm_package(package: NpmPackage) -> str:
    return "[[npm]]\n" + _render_pairs(_to_toml_values(package).items())


def _runtime_sort_key(runtime: LockedRuntime) -> tuple[str, Version, str]:
    return (runtime.engine, Version(runtime.release), runtime.python)


def _package_sort_key(package: LockedPackage) -> tuple[str, Version, Version]:
    return (package.name, Version(package.version), Version(package.python))


class _MultilineArray(list[Any]):
    """An array with a line per element."""


def _to_toml_values(value: object) -> dict[str, Any]:
    """Return a struct's values in the order of its fields, without those that are None."""
    fields: dict[str, Any] = msgspec.to_builtins(value)
    return {key: value for key, value in fields.items() if value is not None}


def _render_header(*keys: str) -> str:
    return f"[{'.'.join(map(_render_key, keys))}]\n"


def _render_pairs(values: Iterable[tuple[str, Any]]) -> str:
    return "".join(f"{_render_key(key)} = {_render_value(value)}\n" for key, value in values)


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
            return repr(value)  # integers and floats are spelled in TOML as in Python


def _render_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quote_string(key)
