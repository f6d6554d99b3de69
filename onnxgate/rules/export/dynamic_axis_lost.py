"""The rule `dynamic-axis-lost`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases
from onnxgate.evidence.export import LostAxis, Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "dynamic-axis-lost", level=Level.ERROR, since="0.1.0")
def dynamic_axis_lost(subject: Reexport) -> Iterator[Hit]:
    """
    An axis is dynamic in the source but fixed or limited in the exported file.

    ## Why it matters
    Inputs that differ in size from the example inputs fail or produce outputs with wrong shapes. Typical causes are
    `int(x.shape[0])` and a misspelled name in `dynamic_axes`. If the file still supports several sizes, this is a
    warning. This is also the case if the axis only has another name in the file, since `sizes` refers to axes by name.

    ## What to do
    - For `nn.LSTM`, `nn.GRU` and `nn.RNN` with a dynamic sequence length, export with `dynamo: False`.
    - In `forward`, use `x.shape[0]`, `-1` and `flatten` instead of `int(...)`.
    - List the axes in `dynamic_shapes`, and use example inputs of size 2 or more on these axes.
    """
    renamed = [dim for dim in subject.interface.lost_axes if dim.renamed]
    if renamed:
        message, fix = _describe_renamed_axes(renamed, subject.behaviour.constants)
        yield Hit(
            subject.place,
            f"export with `{subject.source}`: {message}",
            model=subject.model,
            fix=fix,
            level=Level.WARNING,
            identity="renamed axes",
        )
    for dim in subject.interface.lost_axes:
        if dim.renamed:
            continue
        message, fix = _describe_lost_axis(dim)
        is_narrow = dim.lowest is not None and dim.lowest != dim.highest  # several sizes are still supported
        yield Hit(
            subject.place,
            f"export with `{subject.source}`: {message}",
            model=subject.model,
            fix=subject.behaviour.suggest_for_length(dim.size) or fix,
            level=Level.WARNING if is_narrow else None,
            identity=f"{dim.role} {dim.value} {dim.axis}",
        )


def _describe_renamed_axes(renamed: Sequence[LostAxis], constants: Sequence[str]) -> tuple[str, str]:
    names: dict[str, list[str]] = {}  # requested name -> names in the file
    for dim in renamed:
        names.setdefault(dim.name, []).append(dim.renamed)
    first, written = renamed[0], {name for group in names.values() for name in group}
    message = (
        f"axis {first.axis} of input `{first.value}` is named `{first.renamed}` in the file instead of `{first.name}`"
    )
    if len(renamed) > 1:
        pairs = [f"`{name}` is {_join_quoted(dict.fromkeys(group))}" for name, group in names.items()]
        message = f"dynamic axes have other names in the file: {'; '.join(pairs)}"
    if constants:
        return message, (
            f"set {_join_quoted(constants)} inside the module instead of passing it as an argument; "
            "PyTorch keeps the names of axes only if all arguments in `dynamic_shapes` are tensors"
        )
    used = f"`{first.renamed}`" if len(written) == 1 else "the names in the file"
    return message, f"use {used} in the model's `sizes`, or give all axes that must have equal sizes the same name"


def _describe_lost_axis(dim: LostAxis) -> tuple[str, str]:
    axis = f"axis {dim.axis}" + (f" (`{dim.name}`)" if dim.name else "")
    if dim.role == "value":
        return (
            f"{axis} of `{dim.value}` should be dynamic, but the file has no input or output with this name",
            "in `dynamic_axes`, use the names from `input_names` and `output_names`",
        )
    if dim.lowest is not None:
        sizes = f"sizes of at least {dim.lowest}" if dim.highest is None else f"sizes {dim.lowest}–{dim.highest}"
        if dim.lowest == dim.highest:
            sizes = f"size {dim.lowest}"
        return (
            f"{axis} of input `{dim.value}` is dynamic in the file, but the exported program supports only {sizes}; "
            f"the source also supports {dim.works}",
            "use `torch.where` or `torch.cond` instead of branches that depend on the size, "
            f"and add {dim.works} to the model's `sizes`",
        )
    if dim.grown is not None:
        return (
            f"axis {dim.axis} of output `{dim.value}` always has size {dim.size} in the file, but has size {dim.grown} "
            "in the source for larger inputs",
            "compute with symbolic sizes (`x.shape[0]`, `-1`) instead of `int(...)`",
        )
    return (
        f"{axis} of {dim.role} `{dim.value}` should be dynamic but has fixed size {dim.size} in the file",
        "compute sizes from `x.shape` instead of constants, and use an example input of size 2 or more on this axis",
    )


def _join_quoted(names: Iterable[str]) -> str:
    return join_phrases([f"`{name}`" for name in names])
