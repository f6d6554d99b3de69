"""Read the comments on the fields of a class; they describe keys in the reference and in JSON Schemas."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from typing import Any


def field_comments(kind: type) -> dict[str, str]:
    """Return the last comment on each field by field name; fields without a comment are skipped."""
    source = textwrap.dedent(inspect.getsource(kind))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    comments = _comments(source)
    return {
        node.target.id: comments[line]
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if line in comments
    }


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def describe(schema: dict[str, Any], kinds: dict[str, type]) -> dict[str, Any]:
    """Return the schema with field comments as descriptions of its properties; `kinds` contains the types by title."""
    for title, definition in schema.get("$defs", {}).items():
        if "description" in definition:  # msgspec keeps the indentation of docstrings before 0.23
            definition["description"] = inspect.cleandoc(definition["description"])
        if title in kinds:
            _describe(definition, kinds[title])
    return schema


def _describe(definition: dict[str, Any], kind: type) -> None:
    for name, comment in field_comments(kind).items():
        for spelled in (name, name.replace("_", "-")):
            entry = definition.get("properties", {}).get(spelled)
            if entry is not None and "description" not in entry:
                entry["description"] = comment
