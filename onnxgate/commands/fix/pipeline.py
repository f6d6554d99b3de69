"""Repair of models: find the fixes, verify their result, then write the file."""

from __future__ import annotations

import functools
import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxgate import __version__
from onnxgate.commands.fix import FIXES, verification
from onnxgate.commands.fix.model_file import write_parts
from onnxgate.commands.fix.proposals import Change, Fix, FixRequest, NoFix, VersionLimits
from onnxgate.commands.fix.verification import ModelPair, Verification, VerificationRuntime
from onnxgate.core.files import link_or_copy
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.jobs import Command, CommandResult, Completed
from onnxgate.gate import pipeline
from onnxgate.gate.execution.toolchain import call_inputs
from onnxgate.inputs.cases import InputCases, create_cases
from onnxgate.model.diff.model_diff import NamedModel, compute_diff
from onnxgate.model.reading.external_data import inspect_data_file, is_external, read_external_entries
from onnxgate.model.reading.fact_extraction import ParsedModel
from onnxgate.model.reading.file_format import UnreadableModel, read_pointer
from onnxgate.model.reading.structure import iter_tensors, read_structure
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.plan import PlannedModel
from onnxgate.runtimes.pool.scheduler import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.export.jobs import common_ir_limit, common_opset_limits, highest_allowed_ir

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.core.report import Finding
    from onnxgate.gate.request import GateOutcome, GateRequest
    from onnxgate.model.diff.result import Difference
    from onnxgate.runtimes.pool.scheduler import WorkerPool


ALWAYS_EXPECTED_RULES = frozenset({"model-changed", "ignore-unused"})
"""Rules that report every change."""

FixState = Literal["sound", "repaired", "unsafe", "left", "refuted", "unproven", "away"]
"""Nothing to do; verified (and written, without `--dry-run`); waits for `--unsafe`; no fix applies; the outputs differ;
the outputs are unknown; the file is not here."""


@dataclass(frozen=True, slots=True)
class FixOptions:
    """The options of the command."""

    rules: frozenset[str] = frozenset()  # none: all
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class FixResult:
    """Result for one model."""

    model: SelectedModel
    state: FixState
    findings: tuple[Finding, ...] = ()  # that some fix answers
    words: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    left: tuple[tuple[str, NoFix], ...] = ()  # by fix
    difference: Difference | None = None
    proof: Verification | None = None
    reason: str = ""
    hint: str = ""
    unlinked: tuple[str, ...] = ()
    fresh: Path | None = None  # the repaired file, to be put in place
    sha256: str = ""  # of the file that was read
    accepted: int = 0  # findings that a fix answers, and that an `[[ignore]]` accepts


def fixable_rules(fixes: Sequence[Fix] = FIXES) -> frozenset[str]:
    """Return the rules that have a fix."""
    return frozenset().union(*(fix.rules for fix in fixes))


def fix_models(
    request: GateRequest,
    wish: FixOptions,
    pool: WorkerPool,
    scratch: Path,
    fixes: Sequence[Fix] = FIXES,
    *,
    runs: bool = True,
) -> Iterator[FixResult]:
    """Yield the repair of each model of the request; nothing is written except below `scratch`.

    Without `runs`, none of the planned runtimes can be started: the reference evaluator alone says what is computed.
    """
    selection = replace(request.selection, stages=frozenset(STATIC_STAGES) & request.stages)
    request = replace(request, selection=selection)
    outcome = pipeline.run(request)
    numbers = itertools.count()
    for planned in outcome.planned:
        folder = scratch / str(next(numbers))
        folder.mkdir()
        fixer = _ModelFixer(request, wish, pool, folder, tuple(fixes), outcome, planned, runs)
        yield replace(fixer.repair(), accepted=len(fixer.answered(accepted=True)))


@dataclass(slots=True)
class _ModelFixer:
    """The repair of one model."""

    request: GateRequest
    wish: FixOptions
    pool: WorkerPool
    scratch: Path
    fixes: tuple[Fix, ...]
    before: GateOutcome
    planned: PlannedModel
    runs: bool

    def repair(self) -> FixResult:
        model, findings = self.planned.model, self.answered(accepted=False)
        rules = frozenset(finding.rule for finding in findings)
        fixes = [fix for fix in self.fixes if fix.rules & rules]
        if self.planned.path not in self.before.gathered.facts or read_pointer(model.absolute):
            return self._away(findings)
        applier = FixApplier(self.planned, self.request.project, self.pool, self.scratch, unsafe=self.wish.unsafe)
        try:
            trial = applier.tried(fixes, rules)
        except (OSError, UnreadableModel) as error:
            return replace(self._away(findings), reason=f"it cannot be repaired: {error}")
        result = FixResult(model, "sound", findings, unsafe=tuple(applier.withheld), left=tuple(applier.left))
        if not trial.changes:
            state: FixState = "unsafe" if applier.withheld else "left" if applier.left else "sound"
            return replace(result, state=state, findings=findings if state != "sound" else ())
        return self._verify(trial, result)

    def answered(self, *, accepted: bool) -> tuple[Finding, ...]:
        """Return the findings that have a fix: the accepted ones, or all others."""
        wanted = self.wish.rules or fixable_rules(self.fixes)
        answered = wanted & fixable_rules(self.fixes)
        return tuple(
            finding
            for finding in self.before.findings
            if finding.model == self.planned.path and finding.rule in answered and bool(finding.ignored) == accepted
        )

    def _away(self, findings: tuple[Finding, ...]) -> FixResult:
        reason, hint = self.before.gathered.file.missing.get(self.planned.path, ("it cannot be read", ""))
        return FixResult(self.planned.model, "away", findings, reason=reason, hint=hint)

    def _verify(self, trial: Candidate, result: FixResult) -> FixResult:
        changes = [change for _, change in trial.changes]
        result = replace(
            result,
            words=tuple(word for change in changes for word in change.words),
            unlinked=tuple(name for change in changes for name in change.unlinked),
            fresh=trial.model.absolute,
            sha256=self.before.gathered.facts[self.planned.path].sha256,
        )
        old = runnable_original(self.planned, changes, self.scratch / "old")
        result = replace(result, difference=_diff_with_original(self.planned.path, old, trial.model.absolute))
        if objection := self._objection(trial):
            return replace(result, state="refuted", reason=objection)
        proof = self._proof(trial, old)
        result = replace(result, proof=proof)
        match proof.verdict:
            case "proven":
                return replace(result, state="repaired")
            case "refuted":
                return replace(result, state="refuted", reason="it would not compute the same")
            case "partly" if self.wish.unsafe:
                return replace(result, state="repaired")
            case "partly":
                reason = "it is not proven on every locked runtime"
                return replace(result, state="unproven", reason=reason, hint="`--unsafe` writes it all the same")
            case _:
                return replace(
                    result, state="unproven", reason=proof.reason or "it was compared nowhere", hint=proof.hint
                )

    def _objection(self, trial: Candidate) -> str:
        """Return why the static stages reject the result; "" if the problem is gone and no new one appeared."""
        checkout = replace(self.request.checkout, models=(trial.model,))
        outcome = pipeline.run(replace(self.request, checkout=checkout))
        expected = ALWAYS_EXPECTED_RULES.union(*(change.follows for _, change in trial.changes))
        was = {_finding_key(finding): {"", *finding.runtimes} for finding in self._of_model(self.before)}
        now = [
            finding for finding in self._of_model(outcome) if finding.rule not in expected and finding.level != "note"
        ]
        come = next(
            (finding for finding in now if not {"", *finding.runtimes} <= was.get(_finding_key(finding), set())), None
        )
        if come is not None:
            return f"the result would have another fault: `{come.rule}`: {come.message}"
        left = {_finding_key(finding) for finding in now}
        for fix, _ in trial.changes:
            concerned = {key for key in was if key[0] in fix.rules}
            if concerned <= left:
                return f"`{fix.name}` does not repair what was found"
        return ""

    def _of_model(self, outcome: GateOutcome) -> list[Finding]:
        return [finding for finding in outcome.findings if finding.model == self.planned.path]

    def _proof(self, trial: Candidate, old: Path) -> Verification:
        pair = ModelPair(
            model=self.planned.model,
            old=old,
            new=trial.model.absolute,
            renamed=trial.renamed,
            locked=self.request.lock.models.get(self.planned.path),
        )
        return verification.verify_fix(pair, self._runtimes(), self.pool, self._feed, self.scratch / "proof")

    def _runtimes(self) -> list[VerificationRuntime]:
        runtimes = self.planned.runtimes if self.runs else ()
        pinned, folder = self.request.lock.pinned, self.request.project.folder
        return [
            VerificationRuntime.of_runtime(runtime, WorkerSpec.of_runtime(runtime.runtime, pinned, folder))
            for runtime in runtimes
        ]

    def _feed(self, reading: ParsedModel, folder: Path) -> InputCases:
        project = self.request.project
        call = functools.partial(call_inputs, project, self.pool)
        return create_cases(project, self.planned.model, reading, folder, call=call)


def _finding_key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.fingerprint


def _diff_with_original(name: str, old: Path, new: Path) -> Difference:
    return compute_diff(NamedModel(name, old), NamedModel(f"{name} repaired", new), __version__)


ONNX_SUBPROCESS = Path(__file__).with_name("onnx_subprocess.py")
MAX_COPIED_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model with some changes made."""

    model: SelectedModel
    changes: tuple[tuple[Fix, Change], ...] = ()

    @property
    def renamed(self) -> dict[str, str]:
        """Return the renamed outputs."""
        return {old: new for _, change in self.changes for old, new in change.renamed.items()}


@dataclass(slots=True)
class FixApplier:
    """Applies fixes to one model. `scratch` is an empty folder."""

    planned: PlannedModel
    project: Project
    pool: WorkerPool
    scratch: Path
    unsafe: bool
    left: list[tuple[str, NoFix]] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)  # why changes need `--unsafe`
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def tried(self, fixes: Sequence[Fix], rules: frozenset[str]) -> Candidate:
        """Return the model with all changes applied in order.

        Raises:
            UnreadableModel: it is not a model.
            OSError: it cannot be read, or its data are not all here.
        """
        trial = Candidate(self.planned.model)
        for fix in fixes:
            match self._propose(fix, trial, rules):
                case Change() as change if change.unsafe and not self.unsafe:
                    self.withheld.append(change.unsafe)
                case Change() as change:
                    trial = self._apply(trial, fix, change)
                case NoFix() as left:
                    self.left.append((fix.name, left))
                case None:
                    pass
        return trial

    def _propose(self, fix: Fix, trial: Candidate, rules: frozenset[str]) -> Change | NoFix | None:
        path = trial.model.absolute
        return fix.propose(
            FixRequest(
                path=path,
                proto=read_structure(path),
                rules=rules,
                bounds=self._bounds(),
                root=model_root(self.project, self.planned.model),
                scratch=self._folder(),
                elsewhere=self._run_onnx,
            )
        )

    def _apply(self, trial: Candidate, fix: Fix, change: Change) -> Candidate:
        name = self.planned.path
        place = self._folder() / (Path(name).name if Path(name).is_absolute() else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_parts(change.parts, place)
        for location, file in _required_data_files(read_structure(place), trial.model.absolute).items():
            _copy_or_link(file, place.parent / location)
        return Candidate(replace(self.planned.model, absolute=place), (*trial.changes, (fix, change)))

    def _bounds(self) -> VersionLimits:
        runtimes = [runtime.runtime for runtime in self.planned.runtimes]
        config = self.project.config
        pinned = (config.opset or {}).get("ai.onnx")
        return VersionLimits(
            ir_version=highest_allowed_ir(config.ir_version, common_ir_limit(runtimes)),
            opset=pinned if pinned is not None else common_opset_limits(runtimes).get("ai.onnx"),
            pinned=pinned is not None,
        )

    def _folder(self) -> Path:
        folder = self.scratch / str(next(self.numbers))
        folder.mkdir()
        return folder

    def _run_onnx(self, arguments: Sequence[str]) -> str:
        """Run `onnx_subprocess.py`; return "", or why it failed."""
        python = Path(sys.executable)
        job = Command(argv=(str(python), "-I", "-B", str(ONNX_SUBPROCESS), *arguments), folder=str(self._folder()))
        match self.pool.submit(WorkerSpec.of_interpreter("onnx", python), job).result():
            case Completed(result=CommandResult(status=0)):
                return ""
            case Completed(result=CommandResult(status=status, log=log)):
                return " ".join(log.split())[:300] or f"it ended with status {status}"
            case other:
                return str(getattr(other, "reason", "") or "it crashed, or did not end in time")


def model_root(project: Project, model: SelectedModel) -> Path:
    """Return the repository; for a file outside of it, the folder of the file."""
    return project.root if model.absolute.is_relative_to(project.root) else model.absolute.parent


def runnable_original(planned: PlannedModel, changes: Sequence[Change], folder: Path) -> Path:
    """Return the model's file; or a copy with its data in a new folder, if no runtime can read it in place."""
    stand_in = next((change.stand_in for change in changes if change.stand_in), None)
    if stand_in is None:
        return planned.model.absolute
    folder.mkdir()
    place = folder / Path(planned.path).name
    write_parts(stand_in.parts, place)
    for name, file in stand_in.data.items():
        _copy_or_link(file, folder / name)
    return place


def _required_data_files(proto: ModelProto, model: Path) -> dict[str, Path]:
    """Return the data files of a model, by location."""
    locations = {
        read_external_entries(tensor).get("location", "") for _, tensor in iter_tensors(proto) if is_external(tensor)
    }
    files = {location: inspect_data_file(model, location) for location in sorted(locations)}
    wrong = next((location for location, file in files.items() if file.problem), None)
    if wrong is not None:
        raise OSError(f"its external data `{wrong}` are not all here")
    return {location: file.path for location, file in files.items()}


def _copy_or_link(file: Path, to: Path) -> None:
    """Copy a file, since onnx refuses data with two names; link a large one, which runtimes accept.

    Source: onnx 1.23, ONNX Runtime 1.16 to 1.31.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    if file.stat().st_size > MAX_COPIED_BYTES:
        link_or_copy(file, to)
    else:
        shutil.copyfile(file, to)
