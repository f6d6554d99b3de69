"""The frameworks that a project's sources are written in: what a toolchain must have, and what its lock records.

A source is not run to know that: its imports are read, and those of the project's own modules that it imports.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxgate.config.types import Config

Need = tuple[str, ...]
"""Packages of which one is enough: a framework may be distributed under several names."""


@dataclass(frozen=True, slots=True)
class Framework:
    """How its packages are called, and what else decides what an export of it looks like."""

    modules: tuple[str, ...]
    packages: Need
    converters: tuple[str, ...]


FRAMEWORKS = (
    Framework(("torch",), ("torch",), ("onnx", "onnxscript", "onnx-ir")),
    Framework(("sklearn",), ("scikit-learn",), ("onnx", "skl2onnx")),
    Framework(("xgboost",), ("xgboost", "xgboost-cpu"), ("onnx", "onnxmltools", "skl2onnx")),
    Framework(("lightgbm",), ("lightgbm",), ("onnx", "onnxmltools", "skl2onnx")),
    Framework(("keras",), ("keras",), ("onnx", "tf2onnx", "jax2onnx")),
    Framework(("tensorflow",), ("tensorflow", "tensorflow-cpu", "tensorflow-macos"), ("onnx", "tf2onnx")),
    Framework(("jax", "flax", "equinox"), ("jax",), ("onnx", "onnx-ir", "jax2onnx")),
)


def needs(config: Config, folder: Path) -> tuple[Need, ...]:
    """What the sources import; where nothing is found, any framework, since a package between may import it."""
    sources = [each.source for each in config.model if each.source]
    found = [framework for framework in FRAMEWORKS if framework in _used(sources, folder)]
    if sources and not found:
        return (tuple(framework.packages[0] for framework in FRAMEWORKS),)
    return tuple(framework.packages for framework in found)


def modules(config: Config, folder: Path) -> tuple[str, ...]:
    """The modules of frameworks that the sources import."""
    sources = [each.source for each in config.model if each.source]
    names = {name for source in sources for name in _imported(source, folder)}
    return tuple(name for framework in FRAMEWORKS for name in framework.modules if name in names)


def deciding(config: Config, folder: Path) -> tuple[str, ...]:
    """The packages that the lock records wherever they are installed: what decides what an export is.

    Where a command writes a model, nobody knows what it uses: PyTorch's are recorded.
    """
    sources = [each.source for each in config.model if each.source]
    used = _used(sources, folder) or set(FRAMEWORKS if sources else ())
    if not sources or any(each.command for each in config.model):
        used.add(FRAMEWORKS[0])
    return tuple(sorted({name for framework in used for name in (*framework.packages, *framework.converters)}))


def _used(sources: list[str], folder: Path) -> set[Framework]:
    modules = {name for source in sources for name in _imported(source, folder)}
    return {framework for framework in FRAMEWORKS if modules.intersection(framework.modules)}


def _imported(source: str, folder: Path) -> Iterator[str]:
    """First names of what the source and the project's own modules behind it import."""
    start = folder / source.rpartition(":")[0]
    waiting, seen = [start], {start}
    while waiting:
        file = waiting.pop()
        for name in _imports(file, deep=file == start):
            own = _own(name, (start.parent, folder, file.parent))
            if not own:
                yield name.partition(".")[0]
            waiting += [each for each in own if each not in seen]
            seen.update(own)


def _imports(file: Path, *, deep: bool) -> Iterator[str]:
    """Dotted names of what a file imports whatever happens; with those inside of its functions where `deep`."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        match waiting.pop():
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                prefix = f"{module}." if module else ""
                yield from (prefix + alias.name for alias in names)
                if module and not level:
                    yield module
            case ast.Try():  # it says itself that it may do without
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() if not deep:
                pass
            case node:
                waiting += ast.iter_child_nodes(node)


def _own(name: str, folders: tuple[Path, ...]) -> list[Path]:
    """The project's file of a module, and those of the packages around it."""
    parts = name.split(".")
    found = []
    for folder in dict.fromkeys(folders):
        for count in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:count])
            found += [each for each in (place.with_name(place.name + ".py"), place / "__init__.py") if each.is_file()]
        if found:
            return found
    return found
