"""What an exporter's worker tells of an export beside the file: what was asked for, and what the source itself does."""

from __future__ import annotations

from typing import Literal

import msgspec


class AskedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that the source asks to be dynamic: of the value of that name, or of its tensor input of that number."""

    axis: int
    value: str = ""
    input: int = -1
    name: str = ""  # "batch", "" where it has none


class NarrowAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A dynamic axis of which the exported program holds for some sizes only."""

    input: int
    axis: int
    lowest: int
    highest: int | None = None
    works: int | None = None  # a size beyond these that the source itself takes; None: none is known


class GrownAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of an output that grew when the dynamic axes of the inputs did."""

    output: int  # among the tensors that the source returns
    axis: int
    size: int
    grown: int


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """One of the values that the source returns, flattened."""

    key: str = ""  # "plus" of a mapping, "" where it is known by its position alone
    kind: Literal["tensor", "none", "other"] = "tensor"


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the example that was written into the file, where the source computes with whatever it is given."""

    what: str  # the tracer's warning, or "argument `n` is the number 3"
    source: str = ""  # "file.py:31"
    kind: Literal["argument", "branch", "number"] = "argument"
    varies: bool = False  # a branch that the source was seen to take otherwise


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; what an exporter does not know is empty."""

    exporter: str = ""  # "dynamo", "TorchScript"
    opsets: tuple[int, int] | None = None  # the lowest and the highest of `ai.onnx` that it translates to
    parameters: tuple[str, ...] = ()  # what the source calls its tensor inputs, where the exporter takes these names
    inputs: tuple[str, ...] = ()  # names asked for
    outputs: tuple[str, ...] = ()
    axes: tuple[AskedAxis, ...] = ()
    narrow: tuple[NarrowAxis, ...] = ()
    grew: tuple[AskedAxis, ...] = ()  # axes of inputs that were made larger, to see which outputs grow
    grown: tuple[GrownAxis, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call changes
    remembers: bool = False  # a second call with the same inputs gives other outputs
    fixed: tuple[Fixed, ...] = ()
