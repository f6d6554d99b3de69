"""The subset of GitHub's expressions that `action.yml` uses: contexts, strings, comparisons, status functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Context = Mapping[str, object]
_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|[\w-]+(?:\.[\w-]+)*|==|!=|&&|\|\||[!()])")
STATUS = ("success", "failure", "always", "cancelled")


def interpolate(text: str, context: Context) -> str:
    """Return the text with each `${{ … }}` replaced by its value."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _shown(evaluate(match[1], context)), text, flags=re.DOTALL)


def condition(text: str, context: Context) -> bool:
    """Evaluate a step's `if`; without a status function it implies `success()`."""
    bare = re.sub(r"^\s*\$\{\{(.*)\}\}\s*$", r"\1", text, flags=re.DOTALL)
    implied = not any(f"{name}()" in bare for name in STATUS)
    return bool(evaluate(bare, context)) and (not implied or bool(evaluate("success()", context)))


def evaluate(text: str, context: Context) -> object:
    """Evaluate one expression.
    Raises: ValueError: it uses unsupported syntax.
    """
    tokens = [match[1] for match in _TOKEN.finditer(text)]
    if re.sub(_TOKEN, "", text).strip():
        raise ValueError(f"unknown syntax in `{text}`")
    value = _operation(tokens, context, 0)
    if tokens:
        raise ValueError(f"`{text}` does not end at `{tokens[0]}`")
    return value


_LEVELS: tuple[dict[str, Callable[[object, object], object]], ...] = (
    {"||": lambda left, right: left or right},
    {"&&": lambda left, right: left and right},
    {"==": lambda left, right: _same(left, right), "!=": lambda left, right: not _same(left, right)},
)


def _operation(tokens: list[str], context: Context, level: int) -> object:
    if level == len(_LEVELS):
        return _operand(tokens, context)
    value = _operation(tokens, context, level + 1)
    while tokens and tokens[0] in _LEVELS[level]:
        apply = _LEVELS[level][tokens.pop(0)]
        value = apply(value, _operation(tokens, context, level + 1))
    return value


def _operand(tokens: list[str], context: Context) -> object:
    token = tokens.pop(0)
    if token == "!":
        return not _operand(tokens, context)
    if token == "(":
        return _closed(tokens, _operation(tokens, context, 0))
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if tokens[:2] == ["(", ")"]:
        del tokens[:2]
        return _found(("status", token), context)
    return {"true": True, "false": False, "null": ""}.get(token, _found(tuple(token.split(".")), context))


def _closed(tokens: list[str], value: object) -> object:
    if not tokens or tokens.pop(0) != ")":
        raise ValueError("a parenthesis is not closed")
    return value


def _found(names: tuple[str, ...], context: Context) -> object:
    value: object = context
    for name in names:
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    return value


def _same(left: object, right: object) -> bool:
    return _shown(left).lower() == _shown(right).lower()


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
