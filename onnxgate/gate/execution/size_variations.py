"""Search for other sizes of dynamic axes, if a model was only run with one size of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from onnxgate.core.jobs import CaseResult
from onnxgate.evidence.runtime import find_value_fault
from onnxgate.inputs.axis_sizes import has_declared_name, is_small, resolve_settings
from onnxgate.inputs.cases import CaseGenerator, PlannedCase
from onnxgate.inputs.size_corrections import list_corrections
from onnxgate.model.facts import ValueInfo

MAX_RUNS = 40
"""Maximum number of runs with other sizes of the axes of one model."""

MAX_CORRECTIONS = 2
"""Maximum number of settings from the error text of one run in which other axes change, too."""

LARGE_SIZE = 128
"""From this size on, smaller sizes are tried first, since they need less time."""

_FACTORS = (2, 0.5, 3, 0.75, 1.25)
"""Factors for other sizes of an axis, most likely ones first."""
_SQUARE_FACTOR = 4
"""Factor that is tried last for all axes together. It keeps a square, such as the number of patches of an image.

Smaller squares are left out, because a single patch fits a table of positions of any size.
"""

CRASH = "Crashed"
"""Type of the failure that stands for a crash of the runtime."""

Setting = Mapping[str, int]
RunSetting = Callable[[Setting], Sequence[CaseResult]]


@dataclass(frozen=True, slots=True)
class FoundSizes:
    """Settings that a model accepts, and one with another size of the axes `fixed`, which it rejects.

    The model accepts no other tested size of these axes. Without such axes, `rejected` is None.
    """

    settings: tuple[dict[str, int], ...] = ()
    rejected: dict[str, int] | None = None
    fixed: tuple[str, ...] = ()

    def list_cases(self, generator: CaseGenerator) -> list[PlannedCase]:
        """Return the input cases of all settings, in the order in which they are to run."""
        cases = [*generator.plan(self.settings)]
        if self.rejected is not None:
            cases.append(PlannedCase(msgspec.structs.replace(cases[0].choice, sizes=self.rejected), refused=self.fixed))
        return cases


@dataclass(slots=True)
class VariationSearch:
    """A search for other sizes than those in `base`, which the model accepts.

    `guessed` are the axes that may change; `sizes` are the sizes in the config. `run` runs the model with one setting.
    """

    inputs: Sequence[ValueInfo]
    sizes: Mapping[str, Sequence[int]]
    guessed: Sequence[str]
    base: Setting
    run: RunSetting
    _accepted: list[dict[str, int]] = field(default_factory=list)
    _tried: dict[tuple[int, ...], str] = field(default_factory=dict)  # error text, "" without one
    _certain: bool = True

    def find(self, axes: Sequence[str], accepted: Sequence[Setting] = ()) -> FoundSizes:
        """Find another size for each of the axes. `accepted` are further settings that the model accepts."""
        unchanged = [name for name in axes if all(it.get(name) == self.base[name] for it in accepted)]
        for changed, setting in self._list_settings(unchanged):
            if not self._certain or len(self._tried) >= MAX_RUNS:
                return FoundSizes(tuple(self._accepted))
            varied = self._try(setting, changed) if {*changed} <= {*unchanged} else self.base
            unchanged = [name for name in unchanged if varied[name] == self.base[name]]
        return self._summarize([name for name in unchanged if has_declared_name(name)])

    def _summarize(self, fixed: Sequence[str]) -> FoundSizes:
        accepted = tuple(self._accepted)
        texts = [text for text in self._tried.values() if text]
        if not fixed or not self._certain or all(map(find_value_fault, texts)):  # the values may be the cause
            return FoundSizes(accepted)
        for sizes in self._resize(fixed):
            setting = self._resolve(sizes)
            if is_small(self.inputs, setting):
                is_refused = bool(self._run(setting)) and self._certain
                return FoundSizes(accepted, setting, tuple(fixed)) if is_refused else FoundSizes(accepted)
        return FoundSizes(accepted)

    def _list_settings(self, axes: Sequence[str]) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
        """Yield settings, each with the axes that it varies: all axes together, then each axis alone.

        A model that supports several sizes probably accepts one of them: the size may be limited, odd, or a multiple of
        another size, and other axes may have to change with it.
        """
        if not axes:
            return
        yield from ((tuple(axes), self._resolve(sizes)) for sizes in self._resize(axes, _SQUARE_FACTOR))
        yield tuple(axes), self._resolve({name: 2 * self.base[name] for name in self.guessed})
        yield tuple(axes), {name: 2 * size for name, size in self.base.items()}
        for name in axes if len(axes) > 1 else ():
            yield from (((name,), self._resolve(sizes)) for sizes in self._resize([name]))

    def _resize(self, axes: Sequence[str], *further: int) -> Iterator[dict[str, int]]:
        """Yield other sizes of the axes. Sizes next to the base are left out, as strides may round them to the base."""
        sizes = [self.base[name] for name in axes]
        is_large = max(sizes) >= LARGE_SIZE
        factors = (*(sorted(_FACTORS) if is_large else _FACTORS), *further)
        changes = [*([int(size * factor) for size in sizes] for factor in factors), [2 * size - 1 for size in sizes]]
        for changed in changes:
            if all(changed) and changed != sizes:
                yield dict(zip(axes, changed, strict=True))

    def _resolve(self, changed: Mapping[str, int]) -> dict[str, int]:
        """Return the base with changed axes and those that are computed from them."""
        guesses = {name: changed.get(name, self.base[name]) for name in self.guessed}
        return resolve_settings(self.inputs, self.sizes, guesses)[0]

    def _try(self, setting: dict[str, int], changed: Sequence[str]) -> Setting:
        """Return a setting that the model accepts, which may also have other sizes of other axes; the base without one.

        The error text of the run determines the sizes of the other axes.
        """
        if not is_small(self.inputs, setting):
            return self.base
        if not (text := self._run(setting)):
            return setting
        others = [name for name in self.guessed if name not in changed]
        corrections = list_corrections(text, setting, others).replaced if others else []
        small = (it for it in corrections[:MAX_CORRECTIONS] if is_small(self.inputs, it))
        return next((it for it in small if not self._run(it)), self.base)

    def _run(self, setting: dict[str, int]) -> str:
        """Return the error text of a run with a setting; "" if the model accepts the sizes."""
        key = tuple(setting.values())
        if key not in self._tried:
            failures = [result.failure for result in self.run(setting)]
            texts = [failure.text for failure in failures if failure is not None]
            severe = (failure.memory or failure.type == CRASH for failure in failures if failure is not None)
            if not failures or any(severe):
                self._certain = False  # a crash or a limit shows nothing about the sizes
            self._tried[key] = texts[0] if texts and len(texts) == len(failures) else ""
            if failures and not texts and self._is_configured(setting):
                self._accepted.append(setting)
        return self._tried[key]

    def _is_configured(self, setting: Setting) -> bool:
        """Return whether the axes with configured sizes have these sizes."""
        return self._resolve({name: setting[name] for name in self.guessed}) == setting
