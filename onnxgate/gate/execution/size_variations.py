"""Search for other sizes of dynamic axes, if a model was only run with one size of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from onnxgate.core.jobs import CaseResult
from onnxgate.core.text import join_quoted
from onnxgate.evidence.runtime import find_value_fault
from onnxgate.inputs.axis_sizes import has_declared_name, is_small, name_axes, resolve_settings
from onnxgate.inputs.cases import CaseGenerator, PlannedCase
from onnxgate.inputs.size_corrections import list_corrections
from onnxgate.model.facts import ValueInfo

MAX_RUNS = 64
"""Maximum number of runs with other sizes of the axes of one model."""

MANY_AXES = 3
"""If more axes have only one known size, those of which two error texts name this size are not changed again."""

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

    The model accepts no other tested size of these axes. Without such axes, `rejected` is None. It is not known whether
    the axes `untested` support other sizes, for a reason such as "of the limit of 64 runs".
    """

    settings: tuple[dict[str, int], ...] = ()
    rejected: dict[str, int] | None = None
    fixed: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    reason: str = ""

    def describe_untested(self) -> str:
        """Return a sentence about the axes that were run with one size only; "" if there are none."""
        if not self.untested:
            return ""
        return (
            f"{join_quoted(self.untested)} {'was' if len(self.untested) == 1 else 'were'} run with one size only, "
            + (f"because {self.reason}")
        )

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
    _confirmed: Counter[str] = field(default_factory=Counter)  # number of error texts that require the size in `base`
    _certain: bool = True

    def find(self, axes: Sequence[str], accepted: Sequence[Setting] = ()) -> FoundSizes:
        """Find another size for each of the axes. `accepted` are further settings that the model accepts."""
        unchanged = [name for name in axes if all(it.get(name) == self.base[name] for it in accepted)]
        settings = self._list_settings(unchanged)
        while (following := next(settings, None)) is not None and self._is_searching():
            changed, setting = following
            if len(unchanged) > MANY_AXES and all(self._is_confirmed(name) for name in changed):
                continue
            varied = self._try(setting, changed)
            others = [name for name in unchanged if varied[name] == self.base[name]]
            if others != unchanged:
                unchanged, settings = others, self._list_settings(others)
        declared = [name for name in unchanged if has_declared_name(name)]
        fixed = declared if following is None else [name for name in declared if self._is_confirmed(name)]
        return self._summarize(fixed, [name for name in declared if name not in fixed])

    def _is_searching(self) -> bool:
        return self._certain and len(self._tried) < MAX_RUNS

    def _is_confirmed(self, name: str) -> bool:
        return self._confirmed[name] > 1

    def _summarize(self, fixed: Sequence[str], untested: Sequence[str]) -> FoundSizes:
        reason = f"the search for other sizes ended after {MAX_RUNS} runs" if untested else ""
        limited = FoundSizes(tuple(self._accepted), untested=tuple(untested), reason=reason)
        texts = [text for text in self._tried.values() if text]
        unknown = replace(limited, untested=(*fixed, *untested))
        if not unknown.untested:
            return limited
        if not self._certain:
            return replace(unknown, reason="a run with other sizes crashed or exceeded a limit")
        if not fixed:
            return limited
        if all(map(find_value_fault, texts)):
            return replace(unknown, reason="generated values may be invalid at other sizes")
        for sizes in self._resize(fixed):
            setting = self._resolve(sizes)
            if is_small(self.inputs, setting):
                is_refused = bool(self._run(setting)) and self._certain
                return replace(limited, rejected=setting, fixed=tuple(fixed)) if is_refused else limited
        return replace(unknown, reason="the inputs of other sizes are too large")

    def _list_settings(self, axes: Sequence[str]) -> Iterator[tuple[tuple[str, ...], dict[str, int]]]:
        """Yield settings, each with the axes that it varies: all axes together, then each axis alone.

        A model that supports several sizes probably accepts one of them: the size may be limited, odd, or a multiple of
        another size, and other axes may have to change with it. The most likely size of each axis comes before the
        others, as the number of runs is limited.
        """
        if not axes:
            return
        yield from ((tuple(axes), self._resolve(sizes)) for sizes in self._resize(axes, _SQUARE_FACTOR))
        yield tuple(axes), self._resolve({name: 2 * self.base[name] for name in self.guessed})
        yield tuple(axes), {name: 2 * size for name, size in self.base.items()}
        yield from (
            (pair, self._resolve({a: self.base[b] for a, b in (pair, pair[::-1])})) for pair in self._pair(axes)
        )
        alone = [[((name,), self._resolve(sizes)) for sizes in self._resize([name])] for name in axes if len(axes) > 1]
        yield from (it for row in itertools.zip_longest(*alone) for it in row if it is not None)

    def _pair(self, axes: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield neighboring axes of one input with different sizes, such as the sides of an image with a fixed area."""
        shapes = (name_axes(value) for value in self.inputs)
        pairs = (pair for shape in shapes for pair in itertools.pairwise(shape))
        for a, b in dict.fromkeys(pairs):
            if isinstance(a, str) and isinstance(b, str) and {a, b} <= {*axes} and self.base[a] != self.base[b]:
                yield a, b

    def _resize(self, axes: Sequence[str], *further: int) -> Iterator[dict[str, int]]:
        """Yield other sizes of the axes. Sizes next to the base are left out, as strides may round them to the base."""
        sizes = [self.base[name] for name in axes]
        is_large = max(sizes) >= LARGE_SIZE
        factors = (*(sorted(_FACTORS) if is_large else _FACTORS), *further)
        changes = [[int(size * factor) for size in sizes] for factor in factors]
        changes += [[2 * size + odd for size in sizes] for odd in (-1, 1)]
        for changed in changes:
            if all(changed) and changed != sizes:
                yield dict(zip(axes, changed, strict=True))

    def _resolve(self, changed: Mapping[str, int]) -> dict[str, int]:
        """Return the base with changed axes and those that are computed from them."""
        guesses = {name: changed.get(name, self.base[name]) for name in self.guessed}
        return resolve_settings(self.inputs, self.sizes, guesses)[0]

    def _try(self, setting: dict[str, int], changed: Sequence[str]) -> Setting:
        """Return a setting that the model accepts, which may also have other sizes of other axes; the base without one.

        The error text of the run determines the sizes of the other axes. Axes that must have the size in the base
        according to it are not changed.
        """
        if not is_small(self.inputs, setting):
            return self.base
        if not (text := self._run(setting)):
            return setting
        required = [name for name in changed if self._is_required(name, text, setting)]
        self._confirmed.update(required if len(required) == 1 else ())
        if required and len(required) < len(changed) and self._is_searching():
            kept = {name: self.base[name] for name in required}
            setting = self._resolve({name: setting[name] for name in self.guessed} | kept)
            return self._try(setting, [name for name in changed if name not in required])
        others = [name for name in self.guessed if name not in changed]
        corrections = list_corrections(text, setting, others).replaced if others else []
        small = (it for it in corrections[:MAX_CORRECTIONS] if is_small(self.inputs, it))
        return next((it for it in small if not self._run(it)), self.base)

    def _is_required(self, name: str, text: str, setting: Setting) -> bool:
        """Return whether an error text requires the size in the base for an axis."""
        corrections = list_corrections(text, setting, (name,)).replaced
        return any(correction[name] == self.base[name] for correction in corrections)

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
