"""What the comments beside a class's fields say: the words of the reference and of the editors' schema."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from typing import Any


def field_comments(kind: type) -> dict[str, str]:
    """The comment on each field's own last line, by the field's name; fields without one are left out."""
    source = textwrap.dedent(inspect.getsource(kind))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    spoken = _comments(source)
    return {
        node.target.id: spoken[node.end_lineno]
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno in spoken
    }


def _comments(source: str) -> dict[int | None, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def describe(schema: dict[str, Any], kinds: dict[str, type]) -> dict[str, Any]:
    """The schema with a description of each property that a comment speaks of. `kinds` has the types by their title."""
    for title, definition in schema.get("$defs", {}).items():
        if title in kinds:
            _describe(definition, kinds[title])
    return schema


def _describe(definition: dict[str, Any], kind: type) -> None:
    for name, comment in field_comments(kind).items():
        for spelled in (name, name.replace("_", "-")):
            entry = definition.get("properties", {}).get(spelled)
            if entry is not None and "description" not in entry:
                entry["description"] = comment
