"""The rule `dynamic-axis-lost`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import LostAxis, Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "dynamic-axis-lost", level=Level.ERROR, since="0.1.0")
def dynamic_axis_lost(subject: Reexport) -> Iterator[Hit]:
    """
    An axis that the source asks to be dynamic has a fixed size in the export.

    ## Why it matters
    The exporter reports success. A fixed axis of an input refuses every other size. An output whose declared size does
    not follow its inputs is worse: the graph may compute a wrong shape at other sizes, without any error.
    `int(x.shape[0])` in `forward` does that, and so does a name in `dynamic_axes` that nothing is called.

    The exported program may also hold for fewer sizes than the file says, because a branch on a size was taken as the
    example took it. Where the source itself takes a size beyond, that is said as a warning: only the run at that size
    tells whether the numbers are wrong, too.

    ## What to do
    Leave sizes symbolic in `forward` (`x.shape[0]`, `-1` and `flatten` instead of `int(...)` and numbers), name the
    axes by strings in `dynamic_shapes`, and give the example a size of at least 2 on each of them.
    """
    for dim in subject.interface.lost_axes:
        message, fix = _describe_lost_axis(dim)
        is_narrow = dim.lowest is not None and dim.lowest != dim.highest  # more than one size is left
        yield Hit(
            subject.place,
            f"export by `{subject.source}`: {message}",
            model=subject.model,
            fix=fix,
            level=Level.WARNING if is_narrow else None,
            identity=f"{dim.role} {dim.value} {dim.axis}",
        )


def _describe_lost_axis(dim: LostAxis) -> tuple[str, str]:
    axis = f"axis {dim.axis}" + (f" (`{dim.name}`)" if dim.name else "")
    if dim.role == "value":
        return (
            f"{axis} of `{dim.value}` was to be dynamic, and the file has no input or output of that name",
            "name in `dynamic_axes` what `input_names` and `output_names` name",
        )
    if dim.lowest is not None:
        sizes = f"from {dim.lowest} on" if dim.highest is None else f"for {dim.lowest} to {dim.highest}"
        if dim.lowest == dim.highest:
            sizes = f"for {dim.lowest} alone"
        return (
            f"{axis} of input `{dim.value}` takes any size in the file, and what was exported holds {sizes}, "
            f"while the source takes {dim.works}, too",
            "decide by `torch.where` or `torch.cond` what depends on the size, and run it: "
            f"{dim.works} among its `sizes`",
        )
    if dim.grown is not None:
        return (
            f"axis {dim.axis} of output `{dim.value}` is always {dim.size} in the file, and the source gives "
            f"{dim.grown} when its inputs grow",
            "compute with sizes as they are (`x.shape[0]`, `-1`), not with numbers made of them by `int(...)`",
        )
    return (
        f"{axis} of {dim.role} `{dim.value}` was to be dynamic, and is {dim.size} in the file",
        "do not make a number of that size in the source, and give the example at least 2 there",
    )
