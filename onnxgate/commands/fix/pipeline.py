"""Repair of models. The fixes are applied to a copy, which is then verified."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from onnxgate import __version__
from onnxgate.commands.fix.definition import Change, Fix, FixRequest, NoFix, VersionLimits
from onnxgate.commands.fix.fixes import FIXES
from onnxgate.commands.fix.model_file import write_parts
from onnxgate.commands.fix.verification import ModelPair, Verification, verify_fix
from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.errors import StorageError
from onnxgate.core.files import link_or_copy
from onnxgate.core.findings import STATIC_STAGES, IncompleteCheck, Stage
from onnxgate.core.machine_faults import find_machine_fault
from onnxgate.core.report import Finding
from onnxgate.gate import pipeline
from onnxgate.gate.execution.input_callables import call_inputs
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.inputs.cases import create_cases
from onnxgate.model.diff.model_diff import NamedModel, compute_diff
from onnxgate.model.diff.result import Difference
from onnxgate.model.reading.external_data import inspect_data_file, iter_data_locations
from onnxgate.model.reading.file_format import UnreadableModel, read_pointer
from onnxgate.model.reading.structure import read_structure, read_view
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.plan import PlannedModel
from onnxgate.rules import by_id
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.export_jobs import common_ir_limit, common_opset_limits, highest_allowed_ir

LOCK_RULES = frozenset({"model-changed", "unlocked-model"})
"""Rules whose findings disappear if `onnxgate lock` is run."""
EXPECTED_RULES = LOCK_RULES | {"ignore-unused"}
"""Rules that may yield a finding for every change to a model, such as a model that could not be locked before."""
OTHER_FILE_RULES = LOCK_RULES | {"ignore-unused", "ignore-expired"}
"""Rules whose findings are about the lock or the config, not about the model."""

FixState = Literal["unchanged", "repaired", "unsafe", "unfixable", "failed", "unverified", "unchecked", "unreadable"]
"""States of a repair, in this order: nothing to fix; verified; requires `--unsafe`; no fix applies; verification
failed; could not be verified; nothing to fix was found, but a check is missing; model could not be read.
"""


@dataclass(frozen=True, slots=True)
class FixOptions:
    """The options of `onnxgate fix`."""

    rules: frozenset[str] = frozenset()  # empty: all
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """The repaired file that replaces the model."""

    path: Path
    replaced_sha256: str  # of the original file
    words: tuple[str, ...]  # the changes
    unlinked: tuple[str, ...]  # data files that the model no longer uses
    difference: Difference


@dataclass(frozen=True, slots=True)
class FixResult:
    """Result of fixing one model."""

    model: SelectedModel
    state: FixState
    findings: tuple[Finding, ...] = ()  # findings that a fix can repair
    unsafe: tuple[str, ...] = ()
    unfixed: tuple[tuple[str, NoFix], ...] = ()  # by fix
    repaired: RepairedFile | None = None
    proof: Verification | None = None
    reason: str = ""
    hint: str = ""
    accepted: int = 0  # ignored findings that a fix could repair
    remaining: tuple[Finding, ...] = ()  # errors and warnings of the model as it is, or of the verified result
    unchecked: tuple[IncompleteCheck, ...] = ()  # undecided checks of the model as it is, or of the verified result
    unlocked: bool = False  # whether `onnxgate lock` is needed, even if nothing is repaired


def fixable_rules(fixes: Sequence[Fix] = FIXES) -> frozenset[str]:
    """Return the names of the rules whose findings a fix can repair."""
    return frozenset().union(*(fix.rules for fix in fixes))


def fix_models(
    request: GateRequest,
    fix_options: FixOptions,
    pool: WorkerPool,
    scratch: Path,
    fixes: Sequence[Fix] = FIXES,
    *,
    runs: bool = True,
) -> Iterator[FixResult]:
    """Repair each model in the request and yield the result. Files are written only to `scratch`.

    Without `runs`, no locked runtime is started, and outputs are compared only on ONNX's reference evaluator.
    """
    selection = msgspec.structs.replace(request.selection, stages=frozenset(STATIC_STAGES) & request.stages)
    request = msgspec.structs.replace(request, selection=selection)
    outcome = pipeline.run(request)
    for index, planned in enumerate(outcome.planned):
        folder = scratch / str(index)
        folder.mkdir()
        fixer = _ModelFixer(request, fix_options, pool, folder, tuple(fixes), outcome, planned, runs)
        result = FixResult(planned.model, "unverified")
        with ErrorBoundary(StorageError) as caught:
            result = fixer.repair()
        yield replace(result, reason=caught.reason, hint=caught.hint) if caught.reason else result


MAX_COPIED_BYTES = 1024**3
STILL_REFUSED = "the repaired model would still not load on any required release"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model, and the changes that were applied to it."""

    model: SelectedModel
    changes: tuple[tuple[Fix, Change], ...] = ()


@dataclass(slots=True)
class _ModelFixer:
    """Repairs one model. `scratch` is an empty folder."""

    request: GateRequest
    fix_options: FixOptions
    pool: WorkerPool
    scratch: Path
    fixes: tuple[Fix, ...]
    before: GateOutcome
    planned: PlannedModel
    runs: bool
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def repair(self) -> FixResult:
        """Apply the fixes for the findings to a copy of the model, verify the copy, and return the result."""
        model, fixable = self.planned.model, fixable_rules(self.fixes)
        rules = self.fix_options.rules & fixable if self.fix_options.rules else fixable
        fixable_findings = [finding for finding in self._of_model(self.before) if finding.rule in rules]
        findings = tuple(finding for finding in fixable_findings if not finding.ignored)
        remaining = self._select_remaining(self.before)
        unlocked = any(finding.rule in LOCK_RULES for finding in self._of_model(self.before))
        accepted = len(fixable_findings) - len(findings)
        result = FixResult(model, "unchanged", findings, accepted=accepted, remaining=remaining, unlocked=unlocked)
        reason, hint = self.before.gathered.file.missing.get(self.planned.path, ("the file cannot be read", ""))
        if "git lfs pull" in hint:
            return replace(result, state="unreadable", reason=reason, hint=hint, remaining=())
        if self.planned.path not in self.before.gathered.facts or read_pointer(model.absolute):
            return replace(result, state="unreadable", reason=reason, hint=hint)
        result = replace(result, unchecked=self._select_unchecked(self.before))
        unfixed: list[tuple[str, NoFix]] = []
        withheld: list[str] = []  # why changes require `--unsafe`
        try:
            candidate = self._apply_fixes(findings, self.fixes, unfixed, withheld)
            if self._gains_nothing(candidate):
                fixes = tuple(fix for fix in self.fixes if not _depends_on_target(fix, findings))
                dropped = [fix.name for fix, _ in candidate.changes if fix not in fixes]
                unfixed = [(name, no_fix) for name, no_fix in unfixed if name not in {fix.name for fix in fixes}]
                unfixed += [(name, NoFix(STILL_REFUSED)) for name in dropped]
                withheld = []
                candidate = self._apply_fixes(findings, fixes, unfixed, withheld)
        except (OSError, UnreadableModel) as error:
            if fault := find_machine_fault(error):
                raise StorageError(fault.message, hint=fault.hint) from error
            return replace(result, state="unreadable", reason=f"cannot be repaired: {error}", hint=hint)
        result = replace(result, unsafe=tuple(withheld), unfixed=tuple(unfixed))
        if candidate.changes:
            return self._verify(candidate, result)
        if withheld:
            return replace(result, state="unsafe")
        if remaining or unfixed:
            return replace(result, state="unfixable")
        return replace(result, state="unchecked" if result.unchecked else "unchanged", findings=())

    def _apply_fixes(
        self, findings: Sequence[Finding], fixes: Sequence[Fix], unfixed: list[tuple[str, NoFix]], withheld: list[str]
    ) -> Candidate:
        """Apply the fixes for the findings to a copy of the model, in the given order.

        Raises:
            UnreadableModel: the file is not a model.
            OSError: the file cannot be read, or its external data is incomplete.
        """
        candidate = Candidate(self.planned.model)
        root, limits = model_root(self.request.project, self.planned.model), self._version_limits()
        rules = {finding.rule for finding in findings} | {
            rule for rule in self.fix_options.rules if by_id[rule].stage not in STATIC_STAGES
        }  # findings of runs are not collected here, so that such a rule must be selected
        for fix in fixes:
            if not fix.rules & rules:
                continue
            path = candidate.model.absolute
            request = FixRequest(path, read_structure(path), limits, root, self._folder())
            match fix.propose(request):
                case Change() as change if change.unsafe and not self.fix_options.unsafe:
                    withheld.append(change.unsafe)
                case Change() as change:
                    candidate = self._apply(candidate, fix, change)
                case NoFix() as no_fix:
                    unfixed.append((fix.name, no_fix))
                case None:
                    pass
        return candidate

    def _apply(self, candidate: Candidate, fix: Fix, change: Change) -> Candidate:
        name = self.planned.path
        place = self._folder() / (Path(name).name if Path(name).is_absolute() else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_parts(change.parts, place)
        locations = sorted(set(iter_data_locations(read_view(place))))
        files = {location: inspect_data_file(candidate.model.absolute, location) for location in locations}
        for location, file in files.items():
            if file.problem:
                raise OSError(f"external data `{location}` is incomplete")
        for location, file in files.items():
            _copy_or_link(file.path, place.parent / location)
        return Candidate(
            msgspec.structs.replace(self.planned.model, absolute=place), (*candidate.changes, (fix, change))
        )

    def _version_limits(self) -> VersionLimits:
        runtimes = [runtime.runtime for runtime in self.planned.runtimes]
        config = self.request.project.config
        pinned = self.request.project.required_opset(self.planned.model).get("ai.onnx")
        return VersionLimits(
            ir_version=highest_allowed_ir(config.ir_version, common_ir_limit(runtimes)),
            opset=pinned if pinned is not None else common_opset_limits(runtimes).get("ai.onnx"),
            pinned=pinned is not None,
        )

    def _folder(self) -> Path:
        folder = self.scratch / str(next(self.numbers))
        folder.mkdir()
        return folder

    def _verify(self, candidate: Candidate, result: FixResult) -> FixResult:
        changes = [change for _, change in candidate.changes]
        path, new = self.planned.path, candidate.model.absolute
        old = runnable_original(self.planned, changes, self.scratch / "old")
        repaired = RepairedFile(
            new,
            self.before.gathered.facts[path].sha256,
            words=tuple(word for change in changes for word in change.words),
            unlinked=tuple(name for change in changes for name in change.unlinked),
            difference=compute_diff(NamedModel(path, old), NamedModel(f"{path} repaired", new), __version__),
        )
        result = replace(result, repaired=repaired)
        outcome = self._check(candidate)
        if objection := self._find_objection(candidate, outcome):
            return replace(result, state="failed", reason=objection)
        renamed = {before: after for change in changes for before, after in change.renamed.items()}
        pair = ModelPair(self.planned.model, old, new, renamed, self.request.lock.models.get(path))
        pinned, project = self.request.lock.pinned, self.request.project
        runtimes = self.planned.runtimes if self.runs else ()
        specs = {runtime: WorkerSpec.of_runtime(runtime.runtime, pinned, project.folder) for runtime in runtimes}
        call = functools.partial(call_inputs, project, self.pool)
        create = functools.partial(create_cases, project, self.planned.model, call=call)
        proof = verify_fix(pair, specs, self.pool, create, self.scratch / "proof")
        result = replace(result, proof=proof, unchecked=self._select_unchecked(outcome))
        match proof.verdict:
            case "verified":
                return replace(result, state="repaired", remaining=self._select_remaining(outcome))
            case "failed":
                return replace(
                    result, state="failed", reason="the outputs of the repaired model differ from the original"
                )
            case "partial" if self.fix_options.unsafe:
                return replace(result, state="repaired", remaining=self._select_remaining(outcome))
            case "partial":
                reason = "the repair could not be verified on every locked runtime"
                return replace(
                    result, state="unverified", reason=reason, hint="use `--unsafe` to write the repaired model anyway"
                )
            case "unverified":
                reason = proof.reason or "the outputs could not be compared on any runtime"
                return replace(result, state="unverified", reason=reason, hint=proof.hint)

    def _check(self, candidate: Candidate) -> GateOutcome:
        checkout = msgspec.structs.replace(self.request.checkout, models=(candidate.model,))
        return pipeline.run(msgspec.structs.replace(self.request, checkout=checkout))

    def _loads_nowhere(self, outcome: GateOutcome) -> bool:
        """Return whether the model has an error on every required runtime."""
        errors = [finding for finding in self._of_model(outcome) if finding.level == "error"]
        refused = {runtime for finding in errors for runtime in finding.runtimes}
        return bool(self.planned.runtimes) and all(runtime.name in refused for runtime in self.planned.runtimes)

    def _gains_nothing(self, candidate: Candidate) -> bool:
        """Return whether neither the original nor the repaired model loads on any required runtime.

        With `--rule`, return False, because the user wants to fix specific findings.
        """
        if not candidate.changes or self.fix_options.rules or not self._loads_nowhere(self.before):
            return False
        return self._loads_nowhere(self._check(candidate))

    def _select_remaining(self, outcome: GateOutcome) -> tuple[Finding, ...]:
        """Return the findings of the model that still have to be fixed."""
        rules = self.fix_options.rules
        return tuple(
            finding
            for finding in self._of_model(outcome)
            if finding.level != "note"
            and not finding.ignored
            and finding.rule not in OTHER_FILE_RULES
            and (not rules or finding.rule in rules)
        )

    def _select_unchecked(self, outcome: GateOutcome) -> tuple[IncompleteCheck, ...]:
        """Return the undecided checks of the model, one for each reason."""
        found = (undone for undone in outcome.undecided if undone.model == self.planned.path)
        return tuple({undone.reason: undone for undone in found}.values())

    def _find_objection(self, candidate: Candidate, outcome: GateOutcome) -> str:
        """Return the reason why the findings of the static stages do not permit the repair; "" if they do."""
        expected = EXPECTED_RULES.union(*(change.follows for _, change in candidate.changes))
        runtimes_before = {
            (finding.rule, finding.fingerprint): {"", *finding.runtimes} for finding in self._of_model(self.before)
        }
        remaining = set()
        for finding in self._of_model(outcome):
            if finding.rule in expected or finding.level == "note":
                continue
            key = finding.rule, finding.fingerprint
            if not {"", *finding.runtimes} <= runtimes_before.get(key, set()):
                return f"the repaired model has a new finding: `{finding.rule}`: {finding.message}"
            remaining.add(key)
        for fix, _ in candidate.changes:
            resolved = {key for key in runtimes_before if key[0] in fix.rules}  # empty for findings of runs
            if resolved and resolved <= remaining:
                return f"`{fix.name}` does not resolve the finding"
        known = {undone.reason for undone in self._select_unchecked(self.before)}
        for undone in self._select_unchecked(outcome):
            if undone.reason not in known:
                return f"the repaired model has a new undecided check: {undone.reason}"
        return ""

    def _of_model(self, outcome: GateOutcome) -> list[Finding]:
        return [finding for finding in outcome.findings if finding.model == self.planned.path]


def _depends_on_target(fix: Fix, findings: Sequence[Finding]) -> bool:
    """Return whether all findings that the fix resolves depend on the releases that a target allows."""
    return all(finding.stage == Stage.SUPPORT.value for finding in findings if finding.rule in fix.rules)


def model_root(project: Project, model: SelectedModel) -> Path:
    """Return the root of the repository or, for a model outside the repository, the folder of the model."""
    return project.root if model.absolute.is_relative_to(project.root) else model.absolute.parent


def runnable_original(planned: PlannedModel, changes: Sequence[Change], folder: Path) -> Path:
    """Return the path of the model or, if runtimes cannot load it in place, of a copy in a new folder."""
    stand_in = next((change.stand_in for change in changes if change.stand_in), None)
    if stand_in is None:
        return planned.model.absolute
    folder.mkdir()
    place = folder / Path(planned.path).name
    write_parts(stand_in.parts, place)
    for name, file in stand_in.data.items():
        _copy_or_link(file, folder / name)
    return place


def _copy_or_link(file: Path, to: Path) -> None:
    """Copy a file, or create a hard link to it if it is large.

    Small files are copied, because the onnx package rejects files with several hard links. Runtimes accept them.
    Source: onnx 1.23, ONNX Runtime 1.16 to 1.31.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    if file.stat().st_size > MAX_COPIED_BYTES:
        link_or_copy(file, to)
    else:
        shutil.copyfile(file, to)
