"""What a repaired model gave on a runtime, held against what the old one did: there, or where that one runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onnxgate.evidence.parity import Comparison
from onnxgate.findings import runtime_order
from onnxgate.runtimes.jobs import Completed, Crashed, Observation, Refused, RunResult, TimedOut, Unavailable
from onnxgate.stages.parity import Outputs, ParityModel, between, runs_of
from onnxgate.stages.runtime import Ran

if TYPE_CHECKING:
    from numpy.typing import NDArray

State = Literal["differs", "unknown", "equal"]
WORST_FIRST: tuple[State, ...] = ("differs", "unknown", "equal")
Key = tuple[str, str]  # case, output
Said = tuple[State, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One runtime: what came of it, in words."""

    runtime: str
    text: str
    state: State
    required: bool = True


@dataclass(slots=True)
class Holding:
    """Both models' runs. `largest` is the largest difference that was within a tolerance."""

    model: ParityModel
    renamed: Mapping[str, str]
    old: Sequence[Ran]
    new: Sequence[Ran]
    largest: float = 0.0

    def row(self, runtime: str, levels: Sequence[str], *, required: bool) -> Row:
        """What came of one runtime: the worst of its levels."""
        found = [self._level(runtime, level) for level in levels]
        state, text = min(found, key=lambda each: WORST_FIRST.index(each[0]))
        return Row(runtime, text, state, required)

    def _level(self, runtime: str, level: str) -> Said:
        old, new = _of(self.old, runtime, level), _of(self.new, runtime, level)
        before, now = _outputs(old), _outputs(new)
        if isinstance(new.observation, Unavailable):
            return "unknown", said_of(new.observation)
        if now is None and before is not None:
            return "differs", f"ran before, and does not now: {said_of(new.observation)}"
        if now is None:
            return "unknown", f"gives nothing, before and after: {said_of(new.observation)}"
        if before is not None:
            return self._held(runtime, level, now, before)
        other = self._elsewhere(runtime, level)
        if other is None:
            return "unknown", "runs now, and there is nothing to compare with"
        state, text = self._held(runtime, level, now, other[1])
        return state, f"runs now; beside the old one on {other[0]}: {text}"

    def _elsewhere(self, runtime: str, level: str) -> tuple[str, Outputs] | None:
        """What the old model gave on the newest other runtime: at this level, else at any; the evaluator's last."""
        runs = {name: levels for name, levels in runs_of(self.old).items() if name != runtime}
        for name in sorted(runs, key=_rank, reverse=True):
            outputs = runs[name].get(level) or next(iter(runs[name].values()))
            if outputs.paths:
                return name, outputs
        return None

    def _held(self, runtime: str, level: str, new: Outputs, old: Outputs) -> Said:
        new = self._called_as_before(new)
        missing = sorted(case for case, _ in old.paths.keys() - new.paths.keys())
        if old.names != new.names:
            return "differs", "it gives other outputs"
        if missing:
            return "differs", f"case `{missing[0]}` gives nothing any more"
        if retyped := sorted(key for key in old.paths if _type(new.paths[key]) != _type(old.paths[key])):
            case, output = retyped[0]
            return "differs", f"output `{output}` of `{case}` has another type"
        unlike = {key for key in old.paths if not _is_same(new.paths[key], old.paths[key])}
        if not unlike:
            return "equal", "equal bit for bit"
        now, then = (Outputs(each.names, {key: each.paths[key] for key in unlike}) for each in (new, old))
        return self._near(between(self.model, runtime, {level: now}, "before", {level: then}), unlike)

    def _near(self, comparisons: Sequence[Comparison], keys: set[Key]) -> Said:
        """What is not equal bit for bit, within what the model may differ by."""
        found = [difference for comparison in comparisons for difference in comparison.differences]
        wrong = next((each for each in found if not each.agrees), None)
        if wrong is not None:
            what = wrong.detail or f"{wrong.metric} is {wrong.value:.3g}, and {wrong.bound:.3g} is allowed"
            return "differs", f"output `{wrong.output}` of `{wrong.case}` differs: {what}"
        if left := sorted(keys - {(each.case, each.output) for each in found}):
            return "unknown", f"output `{left[0][1]}` of `{left[0][0]}` cannot be compared"
        largest = max((each.value for each in found if each.metric == "worst_abs"), default=0.0)
        self.largest = max(self.largest, largest)
        return "equal", f"equal within its tolerance, at most {largest:.2g} apart"

    def _called_as_before(self, new: Outputs) -> Outputs:
        """The outputs by the names that they had; a container's layout has its name and a word more."""
        back = {now: before for before, now in self.renamed.items()}
        names = {}
        for name in new.names:
            base, space, rest = name.partition(" ")
            names[name] = back.get(name) or f"{back.get(base, base)}{space}{rest}"
        paths = {(case, names.get(name, name)): path for (case, name), path in new.paths.items()}
        return Outputs(tuple(names[name] for name in new.names), paths)


def _rank(name: str) -> tuple[bool, Any]:
    return not name.startswith("onnx "), runtime_order(name)


def _of(ran: Sequence[Ran], name: str, level: str) -> Ran:
    return next(each for each in ran if each.runtime == name and each.job.optimization == level)


def _outputs(ran: Ran) -> Outputs | None:
    """What one run gave; None where no case gave anything."""
    outputs = runs_of([ran]).get(ran.runtime, {}).get(ran.job.optimization)
    return outputs if outputs is not None and outputs.paths else None


def _is_same(new: str | None, old: str | None) -> bool:
    """Whether two arrays are the same, NaNs and signs of zeros too."""
    if new is None or old is None:
        return False
    a, b = _load(new), _load(old)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _type(path: str | None) -> str:
    """The element type; words are words, however long. "" where numpy has none for it."""
    if path is None:
        return ""
    dtype = _load(path).dtype
    return str(dtype.kind if dtype.kind in "SU" else dtype)


def _load(path: str) -> NDArray[Any]:
    import numpy as np

    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def said_of(observation: Observation) -> str:
    """What became of a run that gave nothing, in one line."""
    match observation:
        case Unavailable(reason=reason):
            return f"not available: {reason}"
        case Refused(failure=failure):
            return f"refused: {_line(failure.text)}"
        case Crashed(signal=signal, during=during):
            return f"{signal} during {during}"
        case TimedOut(limit_s=limit_s, during=during):
            return f"no end within {limit_s:g} s of {during}"
        case Completed(result=RunResult(cases=cases)):
            failures = [case.failure for case in cases if case.failure]
            return f"no case runs: {_line(failures[0].text)}" if failures else "no case was run"
        case Completed():
            return "nothing was run"


def _line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
