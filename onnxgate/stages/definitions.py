"""Where in a project's own code a source is defined."""

from __future__ import annotations

import ast
from pathlib import Path

from onnxgate.findings import Place


def definition(folder: Path, source: str) -> Place | None:
    """The line on which a source's callable is defined, None where that cannot be told."""
    file, _, name = source.rpartition(":")
    try:
        tree: ast.AST = ast.parse((folder / file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for part in name.split("."):
        found = next((node for node in ast.iter_child_nodes(tree) if part in _names(node)), None)
        if found is None:
            return None
        tree = found
    return Place(Path(file).as_posix(), getattr(tree, "lineno", 0))


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name for alias in aliases}
    return set()
