"""Create findings about changed models, and compare their inputs and outputs with those of the baseline."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from onnxgate.core.findings import Hit, HitReference, Level, follows_from
from onnxgate.core.text import join_phrases
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import Dim, ValueInfo
from onnxgate.model.interface_matching import InterfaceMatch, ValuePair, match_values

REVISION = "revision"
"""Value of `Hit.topic` for breaking changes that were found by comparing with a git revision, not with the lock."""
MAX_NAMES = 6
LOCK_BASELINE_RULES = ("model-changed",)
"""Rules that report any change to the content of a model if it is compared with the lock."""


def create_breaking_hit(
    change: ModelChange, message: str, fix: str, *, identity: str, level: Level | None = None, topic: str = ""
) -> Hit:
    """Create the finding for a change to a model that breaks its callers.

    `fix` suggests how to keep the old inputs and outputs.
    """
    return Hit(
        change.place,
        message,
        model=change.after.path,
        fix=f"{fix}, {_describe_acceptance(change)}",
        relations=follows_from(*LOCK_BASELINE_RULES) if change.from_lock else (),
        level=level,
        topic=topic or ("" if change.from_lock else REVISION),
        identity=identity,
    )


def _describe_acceptance(change: ModelChange) -> str:
    """Return the advice to accept a change. Without the same baseline, `check` does not print the entry."""
    against = f"--against {shlex.quote(change.against)} " if change.against else ""
    return f"or accept the change with the entry that `onnxgate check {against}--show-ignores` prints"


def create_note_hit(
    change: ModelChange, message: str, *, identity: str = "", unless: HitReference | None = None
) -> Hit:
    """Create a finding of level `note` about a change to a model that does not break its callers.

    It is omitted if the finding that `unless` refers to is reported.
    """
    causes = (*(LOCK_BASELINE_RULES if change.from_lock else ()), *([unless] if unless else []))
    return Hit(
        change.place,
        message,
        model=change.after.path,
        relations=follows_from(*causes),
        level=Level.NOTE,
        identity=identity,
    )


def limit_list(texts: Sequence[str], most: int = MAX_NAMES) -> list[str]:
    """Return a list of at most `most` texts and, if there are more, their number, such as "a", "b", "3 more"."""
    more = len(texts) - most
    return [*texts[:most], f"{more} more"] if more > 0 else [*texts]


def quote_names(names: Sequence[str]) -> str:
    """Join names, such as "`a`, `b` and 3 more". If there are many, only the first ones are named."""
    return join_phrases(limit_list([f"`{name}`" for name in names]))


def match_outputs(change: ModelChange) -> InterfaceMatch:
    """Match the outputs of a model at the baseline with its outputs after the change."""
    return match_values(change.before.outputs, change.after.outputs)


def match_inputs(change: ModelChange) -> InterfaceMatch:
    """Match the inputs of a model at the baseline with its inputs after the change.

    Inputs that have a default value before or after the change are left out.
    """
    optional = {value.name for value in (*change.before.optional_inputs, *change.after.optional_inputs)}
    before, after = (
        [value for value in side.inputs if value.name not in optional] for side in (change.before, change.after)
    )
    return match_values(before, after)


def match_fed_inputs(change: ModelChange) -> tuple[ValuePair, ...]:
    """Return the inputs that a model had at the baseline and still has, including inputs with a default value."""
    before = {value.name: value for value in change.before.optional_inputs}
    after = {value.name: value for value in change.after.optional_inputs}
    names = sorted(before.keys() | after.keys())
    before |= {value.name: value for value in change.before.inputs}
    after |= {value.name: value for value in change.after.inputs}
    with_default = [ValuePair(before[name], after[name], 0, 0) for name in names if name in before and name in after]
    return (*match_inputs(change).pairs, *with_default)


UNNAMED_AXIS = "?"


class SharedSize(msgspec.Struct, frozen=True):
    """Axes of inputs that must have the same size since a change. Each axis is given as input name and index."""

    symbol: str
    axes: tuple[tuple[str, int], ...]
    were_named: bool  # whether the axes had different sizes or names before


def is_accepted_type(before: str, after: str) -> bool:
    """Return whether a value of the type `before` can be passed to an input of the type `after`.

    Source: ONNX Runtime 1.23 accepts a tensor for an `optional(tensor)`.
    """
    return after in (before, f"optional({before})")


def is_same_kind(pair: ValuePair) -> bool:
    """Return whether an input or output has the same kind, such as tensor or sequence, before and after a change."""
    return pair.before.type.partition("(")[0] == pair.after.type.partition("(")[0]


def has_different_rank(pair: ValuePair) -> bool:
    """Return whether the rank of an input or output has changed; False if the old or new rank is unknown."""
    before, after = pair.before.shape, pair.after.shape
    return before is not None and after is not None and len(before) != len(after)


def is_narrowed(pair: ValuePair) -> bool:
    """Return whether an input no longer accepts a shape that it accepted before, regardless of the other inputs."""
    before, after = pair.before.shape, pair.after.shape
    if after is None or not is_same_kind(pair):
        return False
    if before is None or len(before) != len(after):
        return True
    return any(isinstance(now, int) and was != now for was, now in zip(before, after, strict=True))


def find_new_shared_sizes(pairs: Iterable[ValuePair]) -> Iterator[SharedSize]:
    """Yield groups of input axes that must now have the same size but could have different sizes before.

    The axes of a group have the same symbolic name. Groups are sorted by this name.
    """
    axes_by_symbol: dict[str, list[tuple[str, int, Dim]]] = {}
    for pair in pairs:
        for axis, (was, now) in enumerate(pair_axes(pair)):
            if isinstance(now, str) and now != UNNAMED_AXIS:
                axes_by_symbol.setdefault(now, []).append((pair.after.name, axis, was))
    for symbol, axes in sorted(axes_by_symbol.items()):
        named = {was for _, _, was in axes if _is_declared(was)}
        unnamed = sum(not _is_declared(was) for _, _, was in axes)
        if len(named) + unnamed > 1:
            yield SharedSize(symbol, tuple((name, axis) for name, axis, _ in axes), were_named=len(named) > 1)


def pair_axes(pair: ValuePair) -> Sequence[tuple[Dim, Dim]]:
    """Return the sizes of each axis of an input or output before and after a change.

    Return nothing if the shapes cannot be compared.
    """
    before, after = pair.before.shape, pair.after.shape
    if before is None or after is None or len(before) != len(after) or not is_same_kind(pair):
        return ()
    return tuple(zip(before, after, strict=True))


def _is_declared(dim: Dim) -> bool:
    """Return whether an axis has a fixed size, or a name that was not generated by an exporter.

    Source: torch.onnx and tf2onnx generate names such as `x_dynamic_axes_1` and `unk__6`, one for each axis.
    """
    if isinstance(dim, int):
        return True
    return dim != UNNAMED_AXIS and "_dynamic_axes_" not in dim and not dim.startswith("unk__")


def is_reshaped(pair: ValuePair) -> bool:
    """Return whether the rank or a fixed size of an output has changed."""
    before, after = pair.before.shape, pair.after.shape
    if before is None or after is None or not is_same_kind(pair):
        return False
    return len(before) != len(after) or any(
        isinstance(was, int) and isinstance(now, int) and was != now for was, now in pair_axes(pair)
    )


def has_lost_size(pair: ValuePair, inputs: Sequence[ValuePair]) -> bool:
    """Return whether the rank or a fixed size of an output was known before a change and is unknown after it.

    A size is ignored if an input axis had the same size and now has the same name, because callers know this size.
    """
    if pair.after.shape is None and is_same_kind(pair):
        return pair.before.shape is not None
    followed = {(was, now) for pair in inputs for was, now in pair_axes(pair)}
    return any(
        isinstance(was, int) and isinstance(now, str) and (now == UNNAMED_AXIS or (was, now) not in followed)
        for was, now in pair_axes(pair)
    )


def format_shape(value: ValueInfo, *, unknown: str = "any shape") -> str:
    """Format the shape of an input or output, such as "[N, 4]"."""
    return unknown if value.shape is None else f"[{', '.join(map(str, value.shape))}]"


def format_type(value: ValueInfo) -> str:
    """Format the type and shape of an input or output, such as "`tensor(float)` [N, 4]"."""
    return f"`{value.type}` {format_shape(value, unknown='')}".rstrip()


def is_reordered(match: InterfaceMatch) -> bool:
    """Return whether the order of the matched inputs or outputs has changed."""
    positions = [pair.now for pair in match.pairs]
    return positions != sorted(positions)


def find_shifted_outputs(change: ModelChange) -> tuple[ValuePair, ...]:
    """Return the outputs whose positions have changed only because new outputs precede them.

    Return nothing if the order of outputs has changed.
    """
    match = match_outputs(change)
    if is_reordered(match):
        return ()
    return tuple(pair for pair in match.pairs if pair.now > pair.was)
