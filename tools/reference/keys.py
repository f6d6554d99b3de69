"""Tables of keys, generated from a JSON Schema, with one section for each type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]


NOTHING: Mapping[str, str] = {}


def page(
    title: str,
    introduction: str,
    schema: Schema,
    order: tuple[str, ...] = (),
    written: Mapping[str, str] = NOTHING,
    hidden: frozenset[str] = frozenset(),
) -> str:
    """Return a page with all types in the schema, beginning with the types in `order`.

    `written` contains the TOML syntax of each type. Without it, the page describes an output, which has no defaults.
    Types in `hidden` are omitted.
    """
    definitions: Mapping[str, Schema] = schema["$defs"]
    names = [*(name for name in order if name in definitions), *(name for name in definitions if name not in order)]
    names = [name for name in names if name not in hidden]
    lines = [f"# {title}", "", introduction.strip(), ""]
    for name in names:
        lines += _section(name, definitions[name], written.get(name, ""), with_defaults=bool(written))
    text = "\n".join(lines).rstrip() + "\n"
    for name in hidden:
        link = f"[{name}](#{name.lower()})"
        text = text.replace(f"array of {link}", "array of objects").replace(link, "object")
    return text


def _section(name: str, definition: Schema, written: str, *, with_defaults: bool) -> Iterator[str]:
    yield from (f"## {name}", "")
    if written:
        yield from (f"Syntax: `{written}`", "")
    if description := definition.get("description"):
        yield from (" ".join(str(description).split()), "")
    properties: Mapping[str, Schema] = definition.get("properties", {})
    if not properties:
        return
    required = set(definition.get("required", ()))
    columns = ["key", "type", *(["default"] if with_defaults else [])]
    if not with_defaults and not any("description" in entry for entry in properties.values()):
        yield from (f"Keys: {', '.join(f'`{key}` ({_type(entry)})' for key, entry in properties.items())}.", "")
        return
    yield from (f"| {' | '.join(columns)} | |", f"|{'---|' * (len(columns) + 1)}")
    for key, entry in properties.items():
        default = ["required" if key in required else _default(entry)] if with_defaults else []
        cells = [f"`{key}`", _type(entry), *default, str(entry.get("description", ""))]
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


def _default(entry: Schema) -> str:
    value = entry.get("default")
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else f"`{json.dumps(value)}`"


def _type(entry: Schema) -> str:
    """Return the type in words."""
    if "$ref" in entry:
        name = str(entry["$ref"]).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in entry:
        values = entry["enum"]
        return _join_choices(values) if len(values) <= SHORT else "one of the rules"
    if "anyOf" in entry:
        return " or ".join(_type(each) for each in entry["anyOf"] if each.get("type") != "null")
    match entry.get("type"):
        case "array":
            return f"array of {_plural_type(entry.get('items', {}))}"
        case "object":
            return f"table of {_plural_type(entry.get('additionalProperties', {}))}"
        case str(name):
            return str(entry.get("format", name))
        case _:
            return "any"


def _plural_type(entry: Schema) -> str:
    """Return the type in words, in the plural unless it is a link or a list of choices."""
    return re.sub(r"\b(array|boolean|integer|number|string|table)\b", r"\1s", _type(entry))


def _join_choices(values: Sequence[object]) -> str:
    *names, last = (f"`{value}`" if value != "" else '`""`' for value in values)
    return f"{', '.join(names)} or {last}" if names else last


SHORT = 12
"""Maximum number of choices that are listed."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
