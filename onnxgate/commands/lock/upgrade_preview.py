"""Preview of a lock upgrade: the gate is run with the old lock and with the new one.

The run with the new lock reports what `check` would report after the upgrade; the run with the old lock
reports the problems of today, also of runtimes that stay. Results of the first run are reused by the second,
and the outputs of both are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as altered

from onnxgate.core.files import link_or_copy
from onnxgate.core.findings import Stage, runtime_sort_key
from onnxgate.core.report import Cell, FailOn, Finding, Measured, Report
from onnxgate.core.upgrade_preview import AddedRuntime, Preview
from onnxgate.evidence.parity import Comparison, Difference, find_worst
from onnxgate.gate import pipeline
from onnxgate.gate.execution.parity import report_measurements
from onnxgate.gate.request import GateRequest
from onnxgate.gate.results.verdict import build_report
from onnxgate.project.lock.comparison import describe_lock_changes
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.lock.writer import render_lock
from onnxgate.project.plan import plan_models
from onnxgate.stages.parity.stage import (
    OutputsByLevel,
    ParityModel,
    RunOutputs,
    collect_outputs,
    compare_runtimes,
    runtime_family,
)
from onnxgate.stages.runtime.stage import ObservedRun

COMPARED_STAGES = frozenset({Stage.FILE, Stage.SUPPORT, Stage.RUNTIME, Stage.PARITY})
"""Stages whose findings depend on a runtime, without those that would have to be measured."""
REPORTED_LEVELS = ("error", "warning")

NewFolder = Callable[[], Path]
RuntimesByName = Mapping[str, LockedRuntime]
FindingKey = tuple[str, str, str, str]  # rule, level, model, fingerprint


@dataclass(frozen=True, slots=True)
class RuntimeOutputs:
    """Outputs of one model on one runtime."""

    runtime: str
    levels: OutputsByLevel


@dataclass(slots=True)
class OutputStore:
    """Outputs of models on every runtime, which outlive their run."""

    folder: NewFolder
    models: dict[str, ParityModel] = field(default_factory=dict)
    outputs: dict[tuple[str, str], OutputsByLevel] = field(default_factory=dict)  # by model and runtime

    def watch(self, model: ParityModel, ran: Sequence[ObservedRun]) -> None:
        """Store the outputs of one model."""
        self.models[model.path] = model
        for runtime, levels in collect_outputs(ran).items():
            stored_levels = {level: self._kept(outputs) for level, outputs in levels.items()}
            self.outputs[model.path, runtime] = stored_levels

    def gave(self, model: str, runtime: str) -> RuntimeOutputs:
        """Return the stored outputs of one model on one runtime; without levels if there are none."""
        return RuntimeOutputs(runtime, self.outputs.get((model, runtime), {}))

    def _kept(self, outputs: RunOutputs) -> RunOutputs:
        folder = self.folder()
        folder.mkdir(parents=True)
        numbers = itertools.count()
        paths = {
            key: path if path is None else _link_file(Path(path), folder / f"{next(numbers)}.npy")
            for key, path in outputs.paths.items()
        }
        return RunOutputs(outputs.names, paths)


def _link_file(file: Path, to: Path) -> str:
    link_or_copy(file, to)
    return str(to)


def preview_upgrade(request: GateRequest, new: Lock, fail_on: FailOn, folder: NewFolder) -> Preview:
    """Preview what the new lock changes for the models of the request, whose own lock is the old one.

    `folder` gives a path that does not exist yet, for outputs that are kept as long as the caller wants.
    """
    old, past, now = request.lock, OutputStore(folder), OutputStore(folder)
    locked = _planned_runtimes(request, old)
    names = {
        path: _RuntimeChanges(locked[path], runtimes) for path, runtimes in _planned_runtimes(request, new).items()
    }
    request = replace(request, caches=replace(request.caches, results=folder()))
    selection = replace(request.selection, stages=COMPARED_STAGES)
    checkout = replace(request.checkout, lock=new, lock_text=render_lock(new))
    before = _run_gate(replace(request, selection=selection, watch=past.watch), fail_on)
    after = _run_gate(replace(request, checkout=checkout, watch=now.watch), fail_on)
    at_start, at_end = tuple(_reported_findings(before)), tuple(_reported_findings(after))
    present = (item for item in at_end if _is_already_present(item, names.get(item.model, _NO_RUNTIMES)))
    today = {_finding_key(finding) for finding in (*at_start, *present)}
    to_come = {_finding_key(finding) for finding in at_end}
    come = {runtime for name in names.values() for runtime in name.come}
    cells = {(cell.model, cell.runtime): cell for cell in after.cells}
    arrivals = tuple(
        _compare_added_runtime(cells[path, runtime], changes, after, today, (past, now))
        for path, changes in sorted(names.items())
        for runtime in sorted(changes.come, key=runtime_sort_key)
        if (path, runtime) in cells
    )
    reported_keys = {_finding_key(finding) for arrival in arrivals for finding in arrival.breaks}
    return Preview(
        pins=describe_lock_changes(old, new),
        arrivals=arrivals,
        others=tuple(
            finding for finding in at_end if finding.runtimes and _finding_key(finding) not in today | reported_keys
        ),
        repairs=tuple(
            finding
            for finding in at_start
            if finding.runtimes and _finding_key(finding) not in to_come and _is_decided(finding, after, come)
        ),
        remains=tuple(finding for finding in at_end if not finding.runtimes or _finding_key(finding) in today),
        undecided=tuple(incomplete for incomplete in before.undecided if incomplete not in after.undecided),
        after=after,
    )


@dataclass(frozen=True, slots=True)
class _RuntimeChanges:
    """Runtimes of one model by name, in the old and the new lock; other packages make another runtime."""

    old: RuntimesByName
    new: RuntimesByName

    @property
    def come(self) -> set[str]:
        return self.new.keys() - self.stay

    @property
    def stay(self) -> set[str]:
        return {name for name, runtime in self.new.items() if self.old.get(name) == runtime}

    def before(self, runtime: str) -> str:
        """Return the newest runtime of the same engine in the old lock; "" if there is none."""
        same = [name for name in self.old if runtime_family(name) == runtime_family(runtime)]
        return max(same, key=runtime_sort_key, default="")


_NO_RUNTIMES = _RuntimeChanges({}, {})


def _planned_runtimes(request: GateRequest, lock: Lock) -> dict[str, RuntimesByName]:
    planned = plan_models(request.project, lock, request.models)
    return {planned_model.path: {one.name: one.runtime for one in planned_model.runtimes} for planned_model in planned}


def _is_already_present(finding: Finding, names: _RuntimeChanges) -> bool:
    """Return if a runtime that stays has the finding, from a stage that was not run with the old lock."""
    return Stage(finding.stage) not in COMPARED_STAGES and bool(names.stay & set(finding.runtimes))


def _is_decided(finding: Finding, after: Report, come: set[str]) -> bool:
    """Return if the finding is known to be on none of the added runtimes."""
    open_ones = [
        incomplete for incomplete in (*after.undecided, *after.skipped) if incomplete.model in ("", finding.model)
    ]
    return not any(
        open_one.runtime in come or (bool(come) and not open_one.runtime and open_one.stage == finding.stage)
        for open_one in open_ones
    )


def _run_gate(request: GateRequest, fail_on: FailOn) -> Report:
    report = build_report(request, pipeline.run(request), fail_on)
    return altered(report, counts={**report.counts, "reused": 0})


def _reported_findings(report: Report) -> Iterator[Finding]:
    return (finding for finding in report.findings if finding.level in REPORTED_LEVELS and not finding.ignored)


def _finding_key(finding: Finding) -> FindingKey:
    return finding.rule, finding.level, finding.model, finding.fingerprint


def _compare_added_runtime(
    cell: Cell, names: _RuntimeChanges, after: Report, today: set[FindingKey], stores: tuple[OutputStore, OutputStore]
) -> AddedRuntime:
    model, runtime = cell.model, cell.runtime
    concerned = [
        reported_finding
        for reported_finding in _reported_findings(after)
        if reported_finding.model == model and runtime in reported_finding.runtimes
    ]
    before = names.before(runtime)
    past, now = stores
    outputs, unlike = _measure_output_changes(now.models.get(model), past.gave(model, before), now.gave(model, runtime))
    return AddedRuntime(
        model=model,
        runtime=runtime,
        state=cell.state,
        breaks=tuple(finding for finding in concerned if _finding_key(finding) not in today),
        outputs=outputs,
        before=before,
        unlike=unlike,
    )


def _measure_output_changes(
    model: ParityModel | None, then: RuntimeOutputs, now: RuntimeOutputs
) -> tuple[tuple[Measured, ...], str]:
    """Return the largest change of each output, or why there is none."""
    if not then.runtime:
        return (), "no runtime of this engine is locked yet"
    missing = [outputs.runtime for outputs in (now, then) if not outputs.levels]
    if missing or model is None:
        return (), f"it gave no outputs on {' and '.join(missing)}"
    comparisons = compare_runtimes(model, now.runtime, now.levels, then.runtime, then.levels)
    rows = tuple(row for comparison in comparisons for row in _worst_differences(comparison))
    return rows, "" if rows else "none of its outputs can be compared"


def _worst_differences(comparison: Comparison) -> Iterator[Measured]:
    by_output: dict[str, list[Difference]] = {}
    for difference in comparison.differences:
        by_output.setdefault(difference.output, []).append(difference)
    for differences in by_output.values():
        one = altered(comparison, differences=(find_worst(differences),))
        yield report_measurements(one)[0]
