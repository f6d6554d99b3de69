"""The package is a stack of layers: a module imports only from its own layer and those below it, without cycles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnxgate

PACKAGE = Path(onnxgate.__file__).parent
LAYERS = (
    "cli",
    "github",
    "commands",
    "formats",
    "gate",
    "stages",
    "rules",
    "evidence",
    "inputs",
    "numerics",
    "diagnostics",
    "runtimes",
    "project",
    "support",
    "model",
    "core",
)
"""Top to bottom. DESIGN names them; this is the only list."""
ROOT_FILES = {"__init__.py", "__main__.py", "py.typed"}


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_modules(name: str) -> Iterator[str]:
    """Yield each module of ours that a module imports: at its top, within functions, and for types alone."""
    package = name.split(".") if FILES[name].name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".")
            base = base if node.level else node.module or ""
            for alias in node.names:
                yield from (module for module in (f"{base}.{alias.name}", base) if module in FILES)


GRAPH = {name: {module for module in imported_modules(name) if module != name} for name in FILES}


def layer(name: str) -> str:
    """Return the layer of a module, "" for those at the package's root."""
    return name.split(".")[1] if name.count(".") else ""


def rings(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that cannot be ordered so that each comes after all that it imports."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    return sorted(left)


def without_packages(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out what a module imports of the packages that it lies in, which are loaded with it."""
    return {
        name: {module for module in modules if not name.startswith(f"{module}.")} for name, modules in graph.items()
    }


def test_every_folder_is_a_layer() -> None:
    """A new folder gets its place in the order, and nothing lies loose at the root."""
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}

    assert set(LAYERS) == folders
    assert files == ROOT_FILES


def test_imports_point_downwards() -> None:
    """No module imports from a layer above its own."""
    order = {name: index for index, name in enumerate(LAYERS)}
    upward = [
        f"{name} -> {module}"
        for name, modules in GRAPH.items()
        for module in sorted(modules)
        if layer(name) in order and layer(module) in order and order[layer(module)] < order[layer(name)]
    ]

    assert upward == []


def test_no_import_cycles() -> None:
    """Each module can be read after those that it imports."""
    assert rings(without_packages(GRAPH)) == []


def test_rings_are_found() -> None:
    """The search for cycles finds one, and names no module outside of it that imports nothing of it."""
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_worker_imports_nothing_of_ours() -> None:
    """The worker runs under interpreters that do not have onnxgate."""
    worker = [name for name in FILES if name.startswith("onnxgate.runtimes.worker.")]

    assert worker
    assert [
        f"{name} -> {module}"
        for name in worker
        for module in GRAPH[name]
        if not f"{module}.".startswith("onnxgate.runtimes.worker.")
    ] == []
