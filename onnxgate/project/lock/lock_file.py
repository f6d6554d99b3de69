"""Read and write `onnxgate.lock`: TOML that is easy to review, with the same bytes for the same lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from onnxgate.core.errors import LockError, StorageError, locate_errors
from onnxgate.core.files import follow_links, replace_atomically
from onnxgate.core.machine_faults import find_machine_fault
from onnxgate.core.text import lower_first
from onnxgate.project.git.repository import run_git
from onnxgate.project.lock.types import (
    REVISION,
    VERSION,
    Lock,
    LockedModel,
    LockedPackage,
    NpmPackage,
    digest_values,
)
from onnxgate.project.lock.validation import find_lock_problems
from onnxgate.project.toml import TOMLDecodeError, decode, find_error_line, loads, quote_string

_CONFLICT_MARKER = re.compile(r"^(?:<{7}|>{7}|\|{7}) ", re.MULTILINE)
MAX_PROBLEMS = 10
_RECREATE_HINT = "delete it and run `onnxgate lock`"
_REPAIR_HINT = "run `onnxgate lock`"


def load_lock(path: Path) -> Lock:
    """
    Load the lock from a file.

    Raises:
        LockError: the file is missing or invalid, or was written by a newer onnxgate.
    """
    with locate_errors(path):
        return parse_lock(read_lock(path), path.name, path.parent)


def load_lock_to_update(path: Path, *, repair: bool) -> tuple[Lock, tuple[str, ...]]:
    """
    Load the lock to write it again. With `repair`, return it without its damaged tables, and the damages.

    A damaged target keeps its runtimes without their policy, so that the missing ones are resolved.

    Raises:
        LockError: as `load_lock`, if the damage cannot be repaired; or a newer onnxgate wrote the lock.
    """
    raw, lock = _convert(read_lock(path), path.name, path.parent)
    if lock.revision > REVISION:
        revision = f"`{path.name}` has format revision {lock.revision}; this version of onnxgate writes {REVISION}"
        raise LockError(f"{revision} and would drop information", hint="upgrade onnxgate")
    damages = tuple(_find_damages(raw, lock))
    if not damages:
        return lock, ()
    if not repair:
        raise _damage_error(path.name, damages, _suggest_restoring(path.name, path.parent, _REPAIR_HINT))
    _remove_damaged_tables(raw)
    return msgspec.convert(raw, Lock, strict=True), damages


def _suggest_restoring(name: str, folder: Path | None, remedy: str = _RECREATE_HINT) -> str:
    """Return the hint for a damaged lock. It names the committed lock only if there is one with other content."""
    if folder is not None:
        committed = run_git(folder, ["cat-file", "blob", f"HEAD:./{name}"], offline=True)
        if committed.returncode or committed.stdout == (folder / name).read_bytes():
            return remedy
    return f"restore it (`git checkout HEAD -- {name}`), or {remedy}"


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
    raw, lock = _convert(text, name, folder)
    if damages := tuple(_find_damages(raw, lock)):
        raise _damage_error(name, damages, _suggest_restoring(name, folder, _REPAIR_HINT))
    return lock


def _convert(text: str, name: str, folder: Path | None) -> tuple[dict[str, Any], Lock]:
    """Return the tables of a lock, plain and typed. Digests are not verified.

    Raises:
        LockError: the text is not a lock, is too new, or contains a value that onnxgate never writes.
    """
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
        problem, hint = lower_first(str(error)), _suggest_restoring(name, folder)
        raise LockError(f"`{name}` is damaged: {problem}", line=line, hint=hint) from error
    if problems := tuple(find_lock_problems(lock)):
        raise _damage_error(name, problems, _suggest_restoring(name, folder))
    return raw, lock


def _damage_error(name: str, problems: tuple[str, ...], hint: str) -> LockError:
    if len(problems) == 1:
        return LockError(f"`{name}` is damaged: {problems[0]}", hint=hint)
    more = (f"and {len(problems) - MAX_PROBLEMS} more",) if len(problems) > MAX_PROBLEMS else ()
    shown = (*problems[:MAX_PROBLEMS], *more)
    return LockError(f"`{name}` is damaged in {len(problems)} places", problems=shown, hint=hint)


_DIGEST_KEYS = {"targets": "resolved", "toolchain": "digest", "models": "digest", "packages": "digest", "npm": "digest"}
"""Maps each kind of table to the key of its digest. One digest per table: branches that add models merge cleanly."""


def _find_damages(raw: Mapping[str, Any], lock: Lock) -> Iterator[str]:
    """Yield a message for each part of the lock that is missing, or was changed after onnxgate wrote it."""
    if "revision" not in raw:
        yield "`revision` is missing"
    if lock.revision <= REVISION:
        yield from _find_missing_tables(raw)
    for kind, key in _DIGEST_KEYS.items():
        for name, table in _list_tables(raw, kind):
            if key not in table:
                yield f"{name}: `{key}` is missing"
            elif table[key] != _digest_table(kind, table):
                yield f"{name} does not match `{key}`: a line was changed or removed"
    yield from _find_missing_packages(lock)


def _find_missing_tables(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each kind of table that is missing or unexpected; `tables` lists those that were written."""
    if not isinstance(raw.get("tables"), list):
        yield "`tables` is missing"
        return
    listed = list(map(str, raw["tables"]))
    yield from (f"the table `{kind}` is missing" for kind in listed if kind not in raw)
    yield from (f"`tables` does not list `{kind}`" for kind in _DIGEST_KEYS if kind in raw and kind not in listed)
    known = {*Lock.__struct_fields__, "tables"}
    yield from (f"unknown key `{key}`" for key in raw if key not in known)


def _list_tables(raw: Mapping[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the tables of one kind, each with its name in messages."""
    match raw.get(kind):
        case dict() as table if kind == "toolchain":
            return [("the toolchain", table)]
        case dict() as tables:
            return [(f"{kind.removesuffix('s')} `{name}`", table) for name, table in tables.items()]
        case list() as rows:
            return [(f"package `{row['name']}=={row['version']}`", row) for row in rows]
        case _:
            return []


def _digest_table(kind: str, table: Mapping[str, Any]) -> str:
    return digest_values({key: value for key, value in table.items() if key != _DIGEST_KEYS[kind]})


def _find_missing_packages(lock: Lock) -> Iterator[str]:
    locked = {(f"{package.name}=={package.version}", package.python) for package in lock.pinned}
    for name, target in lock.targets.items():
        for runtime in target.runtimes:
            for pin in runtime.packages if not runtime.environment else ():
                if (pin, runtime.python) not in locked:
                    python = f"for Python {runtime.python}, but the lock lists no wheels for this package"
                    npm = "from npm, but the lock contains no integrity hash for this package"
                    yield f"target `{name}` needs `{pin}` {python if runtime.python else npm}"


def _remove_damaged_tables(raw: dict[str, Any]) -> None:
    for kind, key in _DIGEST_KEYS.items():
        tables = [table for _, table in _list_tables(raw, kind)]
        damaged = [table for table in tables if table.get(key) != _digest_table(kind, table)]
        match kind:
            case "toolchain" if damaged:
                del raw[kind]
            case "targets":
                for table in damaged:
                    table["policy"] = ""
            case "models":
                raw[kind] = {path: table for path, table in raw.get(kind, {}).items() if table not in damaged}
            case "packages" | "npm":
                raw[kind] = [table for table in tables if table not in damaged]


HEADER = "# Written by `onnxgate lock`, to be committed and reviewed. Not to be edited by hand.\n"
_OMITTED_IF_EMPTY = ("producer", "function-opsets", "inputs", "outputs", "metadata-keys", "external")


def write_lock(lock: Lock, path: Path) -> bool:
    """Replace the lock atomically; return False if the file already has this content.

    Raises:
        UsageError: the lock is a link out of the repository.
        StorageError: the file cannot be written.
    """
    data = render_lock(lock).encode()
    path = follow_links(path)
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
    kinds = [kind for kind in _DIGEST_KEYS if getattr(lock, kind)]
    head = {"version": lock.version, "revision": lock.revision, "tables": kinds}
    tables = [f"{HEADER}{_render_pairs(head)}"]
    for name, target in sorted(lock.targets.items()):
        order = sorted(target.runtimes, key=lambda runtime: (runtime.engine, Version(runtime.release), runtime.python))
        rows = _MultilineArray(map(_to_toml_values, order))
        values = _add_digest("targets", {"policy": target.policy, "runtimes": rows})
        tables.append(_render_table({key: values[key] for key in ("policy", "resolved", "runtimes")}, "targets", name))
    if lock.toolchain:
        values = _add_digest("toolchain", _to_toml_values(lock.toolchain))
        packages = values.pop("packages")
        tables.append(_render_table(values, "toolchain"))
        tables.append(_render_table(dict(sorted(packages.items())), "toolchain", "packages"))
    for path, model in sorted(lock.models.items()):
        tables += _render_model(path, model)
    for package in sorted(lock.packages, key=_package_sort_key):
        wheels = _MultilineArray(map(_to_toml_values, sorted(package.wheels, key=lambda wheel: wheel.file)))
        values = _add_digest("packages", {**_to_toml_values(package), "wheels": wheels})
        tables.append(f"[[packages]]\n{_render_pairs(values)}")
    for npm in sorted(lock.npm, key=_package_sort_key):
        tables.append(f"[[npm]]\n{_render_pairs(_add_digest('npm', _to_toml_values(npm)))}")
    return "\n".join(tables)


def _add_digest(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, _DIGEST_KEYS[kind]: _digest_table(kind, values)}


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
    values = _add_digest("models", {key: it for key, it in values.items() if it or key not in _OMITTED_IF_EMPTY})
    tables = {name: values.pop(name) for name in ("operators", "tolerance", "quantization") if name in values}
    yield _render_table(values, "models", path)
    for name, table in tables.items():
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
