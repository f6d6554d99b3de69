"""The toolchain of one run: every source is exported, exported again, and asked what it computes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onnxgate.errors import UnavailableError
from onnxgate.findings import Stage, Undone
from onnxgate.inputs.sample import sample_case
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel
from onnxgate.runtimes.frameworks import modules, needs
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import Case, CaseResult, Completed, Export, ExportResult, Job, Observation, Probe
from onnxgate.runtimes.toolchain import ProbeError, find_toolchain, probe
from onnxgate.stages import export as export_stage
from onnxgate.stages import export_plan
from onnxgate.stages.export_again import Made
from onnxgate.underway import Exporting, Prepared, Sourced, no_reference
from onnxgate.work import Execution, Work


@dataclass(frozen=True, slots=True)
class _Second:
    """A second export that waits for all first ones."""

    job: Job
    first: Future[Observation]
    again: Future[Observation]

    def begin(self, submit: Callable[[Job], Future[Observation]]) -> None:
        """Have it done; where nothing came of the first one, nothing is asked of the second."""
        try:
            seen = self.first.result()
            if isinstance(seen, Completed):
                submit(self.job).add_done_callback(self._end)
            else:
                self.again.set_result(seen)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            self.again.set_exception(error)

    def _end(self, done: Future[Observation]) -> None:
        try:
            self.again.set_result(done.result())
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits
            self.again.set_exception(error)


class Exporter:
    """Asks the toolchain; what comes of it goes into `done`. `folder` gives an unused path for what is written."""

    def __init__(self, work: Work, host: Host, done: Execution, folder: Callable[[], Path]) -> None:
        self._work = work
        self._host = host
        self._done = done
        self._folder = folder
        self._later_ones: list[_Second] = []

    def find_toolchain(self) -> Path | None:
        """The interpreter that exports; None where no model needs it, or where there is none, which is then said."""
        exported = [each for each in self._work.models if each.model.settings.is_exported]
        if not exported:
            return None
        try:
            python = self._python()
            self._judge_toolchain(python)
        except (UnavailableError, ProbeError) as error:
            reason, hint = str(error), getattr(error, "hint", None) or ""
            for each in exported:
                self._undo_source(each, reason, hint)
            return None
        return python

    def _judge_toolchain(self, python: Path) -> None:
        project = self._work.project
        locked = self._work.lock.toolchain
        found = probe(python, locked.packages if locked else ())
        state = export_stage.toolchain_state(project, self._work.lock.toolchain, found)
        if state is not None and Stage.EXPORT in self._work.stages:
            self._done.subjects.append(state)

    def _undo_source(self, each: PlannedModel, reason: str, hint: str) -> None:
        stages = self._work.stages & {Stage.EXPORT, *([Stage.PARITY] if each.model.settings.source else [])}
        self._done.undone += [Undone(stage, each.path, "", reason, hint) for stage in stages]

    def export(self, planned: PlannedModel, facts: ModelFacts, cases: tuple[Case, ...], toolchain: Path) -> Exporting:
        """Have a model's source or command write its file, twice where that is judged, and its source asked beside."""
        plan = export_plan.plan(
            self._work.project,
            planned.model,
            toolchain,
            self._folder(),
            cases=cases if Stage.PARITY in self._work.stages else (),
            ir_version_max=export_plan.ir_limit(each.runtime for each in planned.runtimes),
            external_data=bool(facts.external),
            float64=False,
            opset_max=export_plan.opset_limit(each.runtime for each in planned.runtimes),
            twice=Stage.EXPORT in self._work.stages,
        )
        seat = export_plan.toolchain_seat(toolchain)
        command = self._host.submit(seat, plan.command) if plan.command and Stage.EXPORT in self._work.stages else None
        source = self._host.submit(seat, plan.source) if plan.source else None
        writes = command or source
        again = self._later(plan.again, writes, toolchain) if plan.again and writes else None
        return Exporting(plan, writes, source, again)

    def _later(self, job: Job, first: Future[Observation], toolchain: Path) -> Future[Observation]:
        """What the second export will give; its worker gets ready while the first ones are made."""
        if not self._later_ones and isinstance(job, Export):
            frameworks = modules(self._work.project.config, self._work.project.folder)
            self._host.submit(export_plan.second_seat(toolchain), Probe(exporters=frameworks))
        again: Future[Observation] = Future()
        self._later_ones.append(_Second(job, first, again))
        return again

    def export_again(self, toolchain: Path | None) -> None:
        """Begin the second exports as soon as all first ones are done: runtimes wait for those, and not for these."""
        if toolchain is None or not self._later_ones:
            return
        seat = export_plan.second_seat(toolchain)

        def begin(_: Future[Observation]) -> None:
            for each in self._later_ones:
                each.begin(lambda job: self._host.submit(seat, job))

        self._later_ones[-1].first.add_done_callback(begin)

    def source_of(self, prepared: Prepared) -> Sourced:
        """What the source computes by itself on each case, and its own sample as one more case."""
        exporting = prepared.exporting
        if exporting is None or exporting.source is None or Stage.PARITY not in self._work.stages:
            return Sourced(None, None)
        observation = exporting.source.result()
        result = observation.result if isinstance(observation, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            self._done.undone.append(no_reference(prepared.path, observation))
            return Sourced(None, None)
        eager = {case.name: found for case, found in zip(prepared.fed.cases, result.eager, strict=False)}
        sample = sample_case(prepared.reading.facts, result.input_names, result.sample)
        complete = len(result.eager) == len(prepared.fed.cases) + 1
        if sample is None or not complete or not self._work.asked.takes(sample.name):
            return Sourced(eager, None)
        return Sourced({**eager, sample.name: result.eager[-1]}, sample)

    def ask_source(self, prepared: Prepared, cases: tuple[Case, ...]) -> Mapping[str, CaseResult] | None:
        """What the source gives on the cases; None where it cannot be asked."""
        project, model = self._work.project, prepared.planned.model
        if model.settings.source is None:
            return None
        try:
            python = self._python()
        except UnavailableError:
            return None
        plan = export_plan.plan(project, model, python, self._folder(), cases=cases, float64=False)
        assert plan.source is not None
        job = msgspec.structs.replace(plan.source, export=False)
        answer = self._host.submit(export_plan.toolchain_seat(python), job).result()
        result = answer.result if isinstance(answer, Completed) else None
        if not isinstance(result, ExportResult) or not result.eager:
            return None
        return {case.name: found for case, found in zip(cases, result.eager, strict=False)}

    def ask(self, job: Job) -> Observation:
        """What the toolchain answers."""
        return self._host.submit(export_plan.toolchain_seat(self._python()), job).result()

    def _python(self) -> Path:
        project = self._work.project
        return find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))

    def judge(self, prepared: Prepared) -> None:
        """What came of exporting one model."""
        exporting = prepared.exporting
        if exporting is None or exporting.writes is None:
            return
        made = [self._made(exporting, exporting.writes.result())]
        if exporting.source is not None and exporting.source is not exporting.writes:
            made.append(export_stage.gather_source(self._work.project, exporting.planned, exporting.source.result()))
        self._done.subjects += [each.subject for each in made if each.subject is not None]
        self._done.undone += [each.undone for each in made if each.undone is not None]

    def _made(self, exporting: Exporting, first: Observation) -> Made:
        """What came of both exports; a second one that cannot be made elsewhere is made where the first one was."""
        project, planned = self._work.project, exporting.planned
        again = exporting.again.result() if exporting.again else None
        made = export_stage.gather(project, planned, first, again)
        failed = made.subject.failed_again if made.subject else None
        if failed is None or not export_plan.is_elsewhere(planned):
            return made
        planned = export_plan.in_its_folder(planned)
        assert planned.again is not None
        seat = export_plan.second_seat(self._python())
        made = export_stage.gather(project, planned, first, self._host.submit(seat, planned.again).result())
        if made.subject is not None and made.subject.failed_again is None:
            reason = f"it is exported from its own folder alone: from another one it fails with {failed.type}"
            self._done.skipped.append(Undone(Stage.EXPORT, planned.model.path, "", reason))
        return made
