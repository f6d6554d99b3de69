"""Page about the Python API, generated from the signatures, docstrings and field comments of its public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from onnxgate import api
from onnxgate.api import pytest_plugin
from reference.comments import field_comments

INTRODUCTION = """\
# Python API

The module `onnxgate.api` answers from Python what `onnxgate check`, `matrix` and `support` answer in a terminal.
[Use onnxgate from Python](../guides/python.md) shows examples.

The functions print nothing and do not use the config or the cache. C++ code of onnx runs in a child process. Importing
the module loads neither `onnx` nor NumPy. All names on this page are [stable](../stability.md)."""
FIXTURE = "assert_supported"


def page() -> str:
    """Return the page: functions, the pytest fixture, types and errors."""
    values = {name: getattr(api, name) for name in api.__all__}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    types = {name: value for name, value in values.items() if name not in functions}
    lines = [INTRODUCTION, ""]
    for name, function in functions.items():
        lines += _function(name, function)
    lines += [f"## Fixture {FIXTURE}", "", *_text(inspect.getdoc(_fixture_function()) or "", types), ""]
    for name, kind in types.items():
        lines += _type(name, kind, types)
    return "\n".join(lines).rstrip() + "\n"


def _fixture_function() -> Any:
    return inspect.unwrap(getattr(pytest_plugin, FIXTURE))


def _function(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parameters:
            parameters.append("*")
        default = "" if parameter.default is parameter.empty else f" = {_literal(parameter.default)}"
        parameters.append(f"{parameter.name}: {parameter.annotation}{default}")
    yield from (f"## {name}", "", "```python", f"{name}(")
    yield from (f"    {text}," for text in parameters)
    yield from (f") -> {signature.return_annotation}", "```", "")
    yield from (*_text(inspect.getdoc(function) or "", {}), "")


def _type(name: str, kind: type, types: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "")
    if issubclass(kind, Exception):
        yield from (f"A `{kind.__bases__[0].__name__}`.", "")
    yield from (*_text(inspect.getdoc(kind) or "", types), "")
    if not issubclass(kind, msgspec.Struct):
        return
    comments = field_comments(kind)
    yield from ("| field | type | |", "|---|---|---|")
    for field in msgspec.structs.fields(kind):
        yield f"| `{field.name}` | {_annotation(field.type, types)} | {_cell(comments[field.name])} |"
    for key, value in vars(kind).items():
        if isinstance(value, property):
            returned = inspect.signature(value.fget).return_annotation if value.fget else ""
            text = (inspect.getdoc(value) or "").split("\n\n")[0].rstrip(".").replace("\n", " ")
            yield f"| `{key}` | `{_cell(returned)}` | {_cell(text[0].lower() + text[1:])} |"
    yield ""


def _annotation(kind: object, types: dict[str, Any]) -> str:
    """Return a type as code, and as a link if it is a type of the API."""
    text = kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else str(kind)
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)
    linked = next((name for name in types if re.search(rf"\b{name}\b", text)), "")
    code = f"`{_cell(text.replace(chr(39), chr(34)))}`"
    return f"[{code}](#{linked.lower()})" if linked else code


def _text(docstring: str, types: dict[str, Any]) -> Iterator[str]:
    """Yield a docstring as Markdown, with a table of the errors that it lists."""
    text, _, raised = docstring.partition("\nRaises:\n")
    yield text.strip()
    if raised:
        yield from ("", "| error | |", "|---|---|")
        entries = re.sub(r"\n {8,}", " ", raised).splitlines()
        for names, _, reason in (entry.strip().partition(": ") for entry in entries if entry.strip()):
            yield f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {_cell(reason.rstrip('.'))} |"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
