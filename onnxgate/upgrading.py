"""An upgrade of the lock, tried before anything is written: the gate with the old lock, and with the new one.

With the new lock it says exactly what `check` would say after the upgrade, with the old one what is wrong today: also
of runtimes that stay, which are held against another one where the newest is new. What ran once is not run again. What
the models gave on either side is held against each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as altered

from onnxgate import gate, verdict
from onnxgate.evidence.mismatches import worst
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.findings import Stage, runtime_order
from onnxgate.lock.changes import lock_changes
from onnxgate.lock.types import Lock, LockedRuntime
from onnxgate.lock.writing import render
from onnxgate.model.linking import link
from onnxgate.plan import plan_models
from onnxgate.preview import Arrival, Preview
from onnxgate.report import Cell, FailOn, Finding, Measured, Report
from onnxgate.request import Request
from onnxgate.stages.parity import Levels, Outputs, ParityModel, between, runs_of
from onnxgate.stages.runtime import Ran
from onnxgate.stages.standing import family
from onnxgate.underway import figures

TODAY = frozenset({Stage.FILE, Stage.SUPPORT, Stage.RUNTIME, Stage.PARITY})
"""Stages that say something of a runtime, but for what would have to be measured."""
GRAVE = ("error", "warning")

Folder = Callable[[], Path]
Runtimes = Mapping[str, LockedRuntime]
Key = tuple[str, str, str, str]  # rule, level, model, fingerprint


@dataclass(frozen=True, slots=True)
class Gave:
    """What one model gave on one runtime."""

    runtime: str
    levels: Levels


@dataclass(slots=True)
class Given:
    """What models gave on every runtime, kept beyond the run that gave it."""

    folder: Folder
    models: dict[str, ParityModel] = field(default_factory=dict)
    outputs: dict[tuple[str, str], Levels] = field(default_factory=dict)  # by model and runtime

    def watch(self, model: ParityModel, ran: Sequence[Ran]) -> None:
        """Keep the files of one model."""
        self.models[model.path] = model
        for runtime, levels in runs_of(ran).items():
            kept = {level: self._kept(outputs) for level, outputs in levels.items()}
            self.outputs[model.path, runtime] = kept

    def gave(self, model: str, runtime: str) -> Gave:
        """What is kept of one of them; without levels where it gave nothing."""
        return Gave(runtime, self.outputs.get((model, runtime), {}))

    def _kept(self, outputs: Outputs) -> Outputs:
        folder = self.folder()
        folder.mkdir(parents=True)
        numbers = itertools.count()
        paths = {
            key: path if path is None else _keep(Path(path), folder / f"{next(numbers)}.npy")
            for key, path in outputs.paths.items()
        }
        return Outputs(outputs.names, paths)


def _keep(file: Path, to: Path) -> str:
    link(file, to)
    return str(to)


def preview(request: Request, new: Lock, fail_on: FailOn, folder: Folder) -> Preview:
    """What the new lock would change for the models of the request, whose own lock is the old one.

    `folder` gives a path that does not exist yet, for outputs that are kept as long as the caller wants.
    """
    old, past, now = request.lock, Given(folder), Given(folder)
    locked = _runtimes(request, old)
    names = {path: _Names(locked[path], runtimes) for path, runtimes in _runtimes(request, new).items()}
    request = replace(request, results_folder=folder())
    before = _judged(replace(request, stages=TODAY, watch=past.watch), fail_on)
    after = _judged(replace(request, lock=new, lock_text=render(new), watch=now.watch), fail_on)
    today = {_key(each) for each in _grave(before)} | {
        _key(each) for each in _grave(after) if _is_measured_today(each, names.get(each.model, _NONE))
    }
    to_come = {_key(each) for each in _grave(after)}
    come = {runtime for each in names.values() for runtime in each.come}
    cells = {(cell.model, cell.runtime): cell for cell in after.cells}
    arrivals = tuple(
        _arrival(cells[path, runtime], each, after, today, (past, now))
        for path, each in sorted(names.items())
        for runtime in sorted(each.come, key=runtime_order)
        if (path, runtime) in cells
    )
    told = {_key(finding) for each in arrivals for finding in each.breaks}
    return Preview(
        pins=lock_changes(old, new),
        arrivals=arrivals,
        others=tuple(each for each in _grave(after) if each.runtimes and _key(each) not in today | told),
        repairs=tuple(
            each
            for each in _grave(before)
            if each.runtimes and _key(each) not in to_come and _is_tried(each, after, come)
        ),
        remains=tuple(each for each in _grave(after) if not each.runtimes or _key(each) in today),
        undecided=tuple(each for each in before.undecided if each not in after.undecided),
        after=after,
    )


@dataclass(frozen=True, slots=True)
class _Names:
    """One model's runtimes by name, in the old lock and in the new one; with other packages it is another runtime."""

    old: Runtimes
    new: Runtimes

    @property
    def come(self) -> set[str]:
        return self.new.keys() - self.stay

    @property
    def stay(self) -> set[str]:
        return {name for name, runtime in self.new.items() if self.old.get(name) == runtime}

    def before(self, runtime: str) -> str:
        """The newest runtime of the old lock that is the same engine; "" is none."""
        same = [name for name in self.old if family(name) == family(runtime)]
        return max(same, key=runtime_order, default="")


_NONE = _Names({}, {})


def _runtimes(request: Request, lock: Lock) -> dict[str, Runtimes]:
    planned = plan_models(request.project, lock, request.models)
    return {each.path: {one.name: one.runtime for one in each.runtimes} for each in planned}


def _is_measured_today(finding: Finding, names: _Names) -> bool:
    """Whether a runtime that stays has it, by a stage that nothing of today was asked of."""
    return Stage(finding.stage) not in TODAY and bool(names.stay & set(finding.runtimes))


def _is_tried(finding: Finding, after: Report, come: set[str]) -> bool:
    """Whether it is known that the finding is on none of the runtimes to come."""
    open_ones = [each for each in (*after.undecided, *after.skipped) if each.model in ("", finding.model)]
    return not any(
        each.runtime in come or (bool(come) and not each.runtime and each.stage == finding.stage) for each in open_ones
    )


def _judged(request: Request, fail_on: FailOn) -> Report:
    report = verdict.sum_up(request, gate.run(request), fail_on)
    return altered(report, counts={**report.counts, "reused": 0})


def _grave(report: Report) -> Iterator[Finding]:
    return (each for each in report.findings if each.level in GRAVE and not each.ignored)


def _key(finding: Finding) -> Key:
    return finding.rule, finding.level, finding.model, finding.fingerprint


def _arrival(cell: Cell, names: _Names, after: Report, today: set[Key], given: tuple[Given, Given]) -> Arrival:
    model, runtime = cell.model, cell.runtime
    concerned = [each for each in _grave(after) if each.model == model and runtime in each.runtimes]
    before = names.before(runtime)
    past, now = given
    outputs, unlike = _changed(now.models.get(model), past.gave(model, before), now.gave(model, runtime))
    return Arrival(
        model=model,
        runtime=runtime,
        state=cell.state,
        breaks=tuple(each for each in concerned if _key(each) not in today),
        outputs=outputs,
        before=before,
        unlike=unlike,
    )


def _changed(model: ParityModel | None, then: Gave, now: Gave) -> tuple[tuple[Measured, ...], str]:
    """Of each output its largest change, and why there is none to tell."""
    if not then.runtime:
        return (), "no runtime of this engine is locked yet"
    missing = [each.runtime for each in (now, then) if not each.levels]
    if missing or model is None:
        return (), f"it gave no outputs on {' and '.join(missing)}"
    comparisons = between(model, now.runtime, now.levels, then.runtime, then.levels)
    rows = tuple(row for each in comparisons for row in _worst(each))
    return rows, "" if rows else "none of its outputs can be compared"


def _worst(comparison: Comparison) -> Iterator[Measured]:
    by_output: dict[str, list[Difference]] = {}
    for each in comparison.differences:
        by_output.setdefault(each.output, []).append(each)
    for differences in by_output.values():
        one = altered(comparison, differences=(worst(differences),))
        yield figures(one)[0]
