"""Ways out of a problem, and their wording with and without a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.text import join_command

if TYPE_CHECKING:
    from collections.abc import Sequence


class Action(msgspec.Struct, frozen=True, tag=True):
    """A change to the model or its export."""

    text: str  # "export at opset 18"
    everywhere: bool = False  # every release needs the change, so that no other target is suggested


class ConfigEdit(msgspec.Struct, frozen=True, tag=True):
    """A change to the config. Without a config, it is left out if there is another way and it is not essential."""

    text: str  # "add the file to `exclude` in `onnxgate.toml`"
    essential: bool = False


class Repair(msgspec.Struct, frozen=True, tag=True):
    """A change that `onnxgate fix` makes."""

    model: str  # path
    purpose: str = ""  # "to convert the model"
    options: tuple[str, ...] = ()  # further options of `onnxgate fix`
    condition: str = ""  # when it is possible, if this is unknown
    manual: str = ""  # the same change without `onnxgate fix`; "" if the other ways suffice


Way = Action | ConfigEdit | Repair
Advice = str | tuple[Way, ...]
"""Ways out of a problem, best first; a text if it does not depend on the config."""


def correct_constant(operator: str) -> Advice:
    """Return the advice about a node that no release can compute, because a constant input is wrong."""
    return (Action(f"correct the constant input of `{operator}`, and export the model again", everywhere=True),)


def render_advice(advice: Advice) -> str:
    """Return the advice as text for a repository with a config."""
    if isinstance(advice, str):
        return advice
    return _join_ways([_render_repair(way) if isinstance(way, Repair) else way.text for way in advice])


def render_advice_without_config(advice: Advice, target: str, *, is_fixable: bool) -> str:
    """Return the advice as text for a model without a config; `target` is a requirement for `onnxgate fix`.

    Without `is_fixable`, `onnxgate fix` cannot repair the model.
    """
    if isinstance(advice, str):
        return advice
    ways = [way for way in advice if not isinstance(way, ConfigEdit) or way.essential]
    texts = [_render_way_without_config(way, target, is_fixable=is_fixable) for way in ways]
    edits = [f"run `onnxgate init`, and then {way.text}" for way in advice if isinstance(way, ConfigEdit)]
    return _join_ways(texts) or "".join(edits[:1])


def _render_way_without_config(way: Way, target: str, *, is_fixable: bool) -> str:
    match way:
        case Action(text):
            return text
        case ConfigEdit(text):
            return f"run `onnxgate init`, and {text}"
        case Repair(manual=manual):
            return _render_repair(way, target) if is_fixable else manual


def _render_repair(repair: Repair, target: str = "") -> str:
    """Return the command with its purpose; with a target, its condition is known to be met."""
    options = ["--target", target] if target else []
    command = join_command(("onnxgate", "fix", *repair.options), repair.model, options=options)
    condition = "" if target else repair.condition
    return " ".join(filter(None, (f"run `{command}`", repair.purpose, condition)))


def _join_ways(texts: Sequence[str]) -> str:
    return ", or ".join(filter(None, texts))
