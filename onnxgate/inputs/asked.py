"""Which input cases a command asks for: others are left out, and generated values may be drawn otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxgate.errors import UsageError
from onnxgate.findings import listed
from onnxgate.inputs.sample import NAME as EXAMPLE
from onnxgate.inputs.sizes import named_axes
from onnxgate.model.facts import ValueInfo

NEAREST = 5
"""So many names are listed where one is unknown."""


@dataclass(frozen=True, slots=True)
class Asked:
    """All cases, drawn as always; or only those named, or with a `seed` of their own."""

    seed: int = 0
    cases: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether a case is asked for."""
        return not self.cases or name in self.cases

    def settings(self, inputs: Sequence[ValueInfo]) -> Iterator[dict[str, int]]:
        """The sizes that named cases give the axes of a model: also such as are not tried by themselves."""
        axes = named_axes(inputs)
        form = re.compile("sizes " + " ".join(f"{re.escape(axis)}=(\\d+)" for axis in axes))
        for name in self.cases if axes else ():
            found = form.fullmatch(name)
            if found is not None:
                yield dict(zip(axes, map(int, found.groups()), strict=True))


ALL = Asked()


def refuse_unknown(asked: Asked, known: Iterable[str], sourced: bool) -> None:
    """
    Raise where a named case is none of the `known` ones of any model, nor the example of a source.

    Raises:
        UsageError: it lists the nearest names.
    """
    names = dict.fromkeys([*known, *([EXAMPLE] if sourced else [])])
    for name in asked.cases:
        if name not in names:
            raise UsageError(f"no selected model has the input case `{name}`", hint=_nearest(name, names))


def _nearest(name: str, names: Collection[str]) -> str | None:
    import difflib

    near = difflib.get_close_matches(name, names, NEAREST, 0.3) or sorted(names)[:NEAREST]
    return f"there is {listed([f'`{each}`' for each in near])}" if near else None
