"""The rule `input-shape-narrowed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import (
    create_breaking_hit,
    find_new_shared_sizes,
    format_shape,
    has_different_rank,
    is_narrowed,
    limit_list,
    match_fed_inputs,
    pair_axes,
)


@rule(ModelChange, "input-shape-narrowed", level=Level.ERROR, since="0.1.0")
def input_shape_narrowed(subject: ModelChange) -> Iterator[Hit]:
    """
    An input accepts fewer shapes than in the baseline.

    ## Why it matters
    Inputs of sizes that are no longer accepted fail with `Got invalid dimensions for input`. Exporters fix the size of
    axes that are not declared as dynamic.

    Axes that now share a name are also reported, because they must have equal sizes. If these axes had no names in the
    baseline, this is a warning.

    ## What to do
    - Declare the axis in `dynamic_shapes` (TorchScript exporter: `dynamic_axes`), and use an example input of size 2 or
      more on this axis.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    pairs = match_fed_inputs(subject)
    for pair in filter(is_narrowed, pairs):
        fix = f"export it with {format_shape(pair.before)}"
        if not has_different_rank(pair):
            is_fixed = any(isinstance(was, str) and isinstance(now, int) for was, now in pair_axes(pair))
            fix = f"{fix} (`dynamic_shapes`)" if is_fixed else "export it with the old sizes"
        yield create_breaking_hit(
            subject,
            f"input `{pair.after.name}` accepts {format_shape(pair.after)}; "
            f"it accepted {format_shape(pair.before)} {subject.baseline}",
            fix,
            identity=pair.after.name,
        )
    for axes in find_new_shared_sizes(pairs):
        names = [f"axis {axis} of `{name}`" for name, axis in axes.axes]
        yield create_breaking_hit(
            subject,
            f"{join_phrases(limit_list(names))} must have the same size, `{axes.symbol}`; "
            f"{'they were independent' if axes.were_named else 'this was not declared'} {subject.baseline}",
            "use different names for axes whose sizes may differ",
            identity=" ".join(f"{name}[{axis}]" for name, axis in axes.axes),
            level=None if axes.were_named else Level.WARNING,
        )
