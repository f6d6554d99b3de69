"""Preview of a lock upgrade: compares the reports of a check with the old lock and a check with the new lock.

The second check reuses results of the first check for runtimes that are in both locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace
from msgspec.structs import replace as altered

from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.files import link_or_copy
from onnxgate.core.findings import Stage, runtime_sort_key
from onnxgate.core.report import AddedRuntime, Cell, FailOn, Finding, Measured, NotDone, Preview, Report
from onnxgate.evidence.parity import Difference, find_worst
from onnxgate.gate import pipeline
from onnxgate.gate.execution.parity.comparison import report_measurements
from onnxgate.gate.request import GateRequest
from onnxgate.gate.results.target_advice import suggest_target_changes
from onnxgate.gate.results.verdict import build_report
from onnxgate.project.lock.comparison import describe_lock_changes
from onnxgate.project.lock.lock_file import render_lock
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.plan import plan_models
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.run_outputs import OutputsByLevel, RunOutputs, collect_outputs, runtime_family
from onnxgate.stages.parity.stage import compare_runtimes
from onnxgate.stages.runtime import ObservedRun

COMPARED_STAGES = frozenset({Stage.FILE, Stage.SUPPORT, Stage.RUNTIME, Stage.PARITY})
"""Stages whose findings depend on a runtime."""
REPORTED_LEVELS = ("error", "warning")

NewFolder = Callable[[], Path]
RuntimesByName = Mapping[str, LockedRuntime]
FindingKey = tuple[str, str, str, str]  # rule, level, model, fingerprint


@dataclass(slots=True)
class OutputStore:
    """Outputs of the models on every runtime, stored as files."""

    folder: NewFolder
    models: dict[str, ParityModel] = field(default_factory=dict)
    outputs: dict[tuple[str, str], OutputsByLevel] = field(default_factory=dict)  # by model and runtime

    def watch(self, model: ParityModel, ran: Sequence[ObservedRun]) -> None:
        """Store the outputs that one model produced on all runtimes."""
        self.models[model.path] = model
        for runtime, levels in collect_outputs(ran).items():
            self.outputs[model.path, runtime] = {level: self._link(outputs) for level, outputs in levels.items()}

    def _link(self, outputs: RunOutputs) -> RunOutputs:
        folder = self.folder()
        folder.mkdir(parents=True)
        links = dict(outputs.paths)
        for index, (key, path) in enumerate(outputs.paths.items()):
            if path is not None:
                links[key] = str(folder / f"{index}.npy")
                link_or_copy(Path(path), folder / f"{index}.npy")
        return RunOutputs(outputs.names, links)


def preview_upgrade(request: GateRequest, new: Lock, fail_on: FailOn, folder: NewFolder) -> Preview:
    """Compare a check with the current lock in `request` and a check with the `new` lock.

    `folder` returns the path of an unused folder at each call.
    """
    old, stores = request.lock, (OutputStore(folder), OutputStore(folder))
    locked, planned = _planned_runtimes(request, old), _planned_runtimes(request, new)
    changes_by_model = {path: _RuntimeChanges(locked[path], runtimes) for path, runtimes in planned.items()}
    request = replace(request, caches=replace(request.caches, results=folder()))
    selection = replace(request.selection, stages=COMPARED_STAGES)
    checkout = replace(request.checkout, lock=new, lock_text=render_lock(new))
    before = _run_gate(replace(request, selection=selection, watch=stores[0].watch), fail_on)
    after = _run_gate(replace(request, checkout=checkout, watch=stores[1].watch), fail_on)
    at_start, at_end = _reported_findings(before), _reported_findings(after)
    today = {_finding_key(finding) for finding in at_start}
    for finding in at_end:  # from stages that did not run with the old lock
        changes = changes_by_model.get(finding.model)
        if Stage(finding.stage) not in COMPARED_STAGES and changes and changes.stay & set(finding.runtimes):
            today.add(_finding_key(finding))
    cells = {(cell.model, cell.runtime): cell for cell in after.cells}
    undone: list[NotDone] = []
    arrivals = tuple(
        _compare_added_runtime(cells[path, runtime], changes.before(runtime), at_end, today, stores, undone)
        for path, changes in sorted(changes_by_model.items())
        for runtime in sorted(changes.come, key=runtime_sort_key)
        if (path, runtime) in cells
    )
    reported = today.union(_finding_key(finding) for arrival in arrivals for finding in arrival.breaks)
    to_come = {_finding_key(finding) for finding in at_end}
    absent = [finding for finding in at_start if finding.runtimes and _finding_key(finding) not in to_come]
    come = {runtime for changes in changes_by_model.values() for runtime in changes.come}
    return Preview(
        pins=describe_lock_changes(old, new),
        arrivals=arrivals,
        others=tuple(finding for finding in at_end if finding.runtimes and _finding_key(finding) not in reported),
        repairs=tuple(finding for finding in absent if _is_decided(finding, after, come)),
        remains=tuple(finding for finding in at_end if not finding.runtimes or _finding_key(finding) in today),
        undecided=(*(incomplete for incomplete in before.undecided if incomplete not in after.undecided), *undone),
        after=after,
    )


@dataclass(frozen=True, slots=True)
class _RuntimeChanges:
    """Runtimes of one model in the old and the new lock, keyed by name. A runtime with other packages counts as new."""

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


def _planned_runtimes(request: GateRequest, lock: Lock) -> dict[str, RuntimesByName]:
    models = plan_models(request.project, lock, request.models)
    return {model.path: {planned.name: planned.runtime for planned in model.runtimes} for model in models}


def _is_decided(finding: Finding, after: Report, come: set[str]) -> bool:
    """Return whether all checks that could report the finding on an added runtime were completed."""
    return not any(
        incomplete.runtime in come or (bool(come) and not incomplete.runtime and incomplete.stage == finding.stage)
        for incomplete in (*after.undecided, *after.skipped)
        if incomplete.model in ("", finding.model)
    )


def _run_gate(request: GateRequest, fail_on: FailOn) -> Report:
    outcome = pipeline.run(request)
    report = suggest_target_changes(build_report(request, outcome, fail_on), outcome.gathered.judged)
    return altered(report, counts={**report.counts, "reused": 0})


def _reported_findings(report: Report) -> tuple[Finding, ...]:
    return tuple(finding for finding in report.findings if finding.level in REPORTED_LEVELS and not finding.ignored)


def _finding_key(finding: Finding) -> FindingKey:
    return finding.rule, finding.level, finding.model, finding.fingerprint


def _compare_added_runtime(
    cell: Cell,
    before: str,
    findings: Sequence[Finding],
    today: set[FindingKey],
    stores: tuple[OutputStore, OutputStore],
    undone: list[NotDone],
) -> AddedRuntime:
    """Return the results of one model on an added runtime. If its outputs cannot be compared, extend `undone`."""
    concerned = (item for item in findings if item.model == cell.model and cell.runtime in item.runtimes)
    outputs: tuple[Measured, ...] = ()
    unlike = ""
    with ErrorBoundary() as caught:
        outputs, unlike = _measure_output_changes(cell, before, stores)
    if caught.reason:
        unlike = caught.reason
        undone.append(
            NotDone(stage=Stage.PARITY.value, model=cell.model, runtime=cell.runtime, reason=unlike, hint=caught.hint)
        )
    return AddedRuntime(
        model=cell.model,
        runtime=cell.runtime,
        state=cell.state,
        breaks=tuple(finding for finding in concerned if _finding_key(finding) not in today),
        outputs=outputs,
        before=before,
        unlike=unlike,
    )


def _measure_output_changes(
    cell: Cell, before: str, stores: tuple[OutputStore, OutputStore]
) -> tuple[tuple[Measured, ...], str]:
    """Return the largest change in each output compared with the runtime `before`, or the reason why it is unknown."""
    if not before:
        return (), "no earlier release of this engine is locked"
    model = stores[1].models.get(cell.model)
    old, new = stores[0].outputs.get((cell.model, before)), stores[1].outputs.get((cell.model, cell.runtime))
    if model is None or not old or not new:
        missing = [name for name, outputs in ((cell.runtime, new), (before, old)) if not outputs]
        return (), f"no outputs from {' and '.join(missing)}"
    rows = []
    for comparison in compare_runtimes(model, cell.runtime, new, before, old):
        by_output: dict[str, list[Difference]] = {}
        for difference in comparison.differences:
            by_output.setdefault(difference.output, []).append(difference)
        for differences in by_output.values():
            rows += report_measurements(altered(comparison, differences=(find_worst(differences),)))[:1]
    return tuple(rows), "" if rows else "no output can be compared"
