"""The rule `input-shape-narrowed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.evidence.breaks import breaks
from onnxgate.evidence.changes import ModelChange
from onnxgate.evidence.interfaces import Pair, fed_pairs
from onnxgate.evidence.narrowing import OneSize, narrowed, newly_of_one_size, ranks_differ, spell
from onnxgate.findings import Hit, Level, listed
from onnxgate.rules.registry import rule

AXES_SAID = 6


@rule(ModelChange, "input-shape-narrowed", level=Level.ERROR, since="0.1.0")
def input_shape_narrowed(subject: ModelChange) -> Iterator[Hit]:
    """
    An input of a model no longer accepts shapes that it accepted at the baseline.

    ## Why it matters
    A caller who feeds another batch, length or image size than the one at the export gets `Got invalid dimensions for
    input`. An exporter makes an axis static when it is not told that it is dynamic, or when the code of the model
    specialises it: a sample batch of 1 is the usual cause.

    Narrowed is a dynamic axis that has a fixed size now, a fixed size that is another, another rank, and a shape where
    there was none. Axes that have one name now and had two are narrowed too: ONNX says that they are of one size, and
    runtimes reuse memory by it. Where the file did not name them before, that is a warning. Other names for axes, and
    axes that became dynamic, narrow nothing. What is inside of sequences and optionals is not compared.

    ## What to do
    Export with the axis dynamic: `dynamic_shapes`, or `dynamic_axes` of the older exporter, with a sample of at least
    2. If the callers are changed together with the model, accept the break with an `[[ignore]]` that has this
    content's `sha256`.
    """
    pairs = fed_pairs(subject)
    for pair in pairs:
        if narrowed(pair):
            yield breaks(
                subject,
                f"input `{pair.after.name}` takes {spell(pair.after)}; it took {spell(pair.before)} {subject.baseline}",
                _remedy(pair),
            )
    for axes in newly_of_one_size(pairs):
        yield breaks(
            subject,
            f"{_said(axes)} are declared to be of one size, `{axes.symbol}`; {_were(axes)} {subject.baseline}",
            "give axes that may differ names of their own",
            level=None if axes.were_named else Level.WARNING,
        )


def _remedy(pair: Pair) -> str:
    if ranks_differ(pair):
        return f"export it with {spell(pair.before)}"
    return f"export it with {spell(pair.before)} (`dynamic_shapes`)" if _lost_dynamic(pair) else "keep the sizes"


def _lost_dynamic(pair: Pair) -> bool:
    sizes = zip(pair.before.shape or (), pair.after.shape or (), strict=False)
    return any(isinstance(was, str) and isinstance(now, int) for was, now in sizes)


def _said(shared: OneSize) -> str:
    """ "axis 0 of `x` and axis 1 of `y`"."""
    axes = [f"axis {axis} of `{name}`" for name, axis in shared.axes[:AXES_SAID]]
    more = len(shared.axes) - len(axes)
    return listed([*axes, f"{more} more"] if more else axes)


def _were(shared: OneSize) -> str:
    return "they were independent" if shared.were_named else "nothing was said of that"
