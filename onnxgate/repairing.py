"""Models repaired: what fixes answer what is wrong, whether the result is the same model, and only then the file."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxgate import __version__, gate, proving
from onnxgate.calling import call_inputs
from onnxgate.config.project import SelectedModel
from onnxgate.feeding import Fed, feed
from onnxgate.findings import STATIC_STAGES
from onnxgate.model.differing import Given, difference
from onnxgate.model.pointer import read_pointer
from onnxgate.model.reading import Reading
from onnxgate.model.structure import UnreadableModel
from onnxgate.plan import PlannedModel
from onnxgate.proving import Pair, Proof, Stand
from onnxgate.repair import FIXES, Fix, Left
from onnxgate.runtimes.seats import Seat
from onnxgate.trying import Trial, Trying, as_it_was

if TYPE_CHECKING:
    from onnxgate.model.difference import Difference
    from onnxgate.report import Finding
    from onnxgate.request import Outcome, Request
    from onnxgate.runtimes.host import Host

CHILD = Path(__file__).parent / "repair" / "child.py"
MOST_COPIED_BYTES = 1024**3
BY_NATURE = frozenset({"model-changed", "ignore-unused"})
"""Rules that find any change at all."""

State = Literal["sound", "repaired", "unsafe", "left", "refuted", "unproven", "away"]
"""Nothing to do; proven (and written, unless that was not asked for); waits for `--unsafe`; no fix can; the outputs are
other ones; nothing is known of them; the file is not here."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asks for."""

    rules: frozenset[str] = frozenset()  # none: all
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """What came of one model."""

    model: SelectedModel
    state: State
    findings: tuple[Finding, ...] = ()  # that some fix answers
    words: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    left: tuple[tuple[str, Left], ...] = ()  # by fix
    difference: Difference | None = None
    proof: Proof | None = None
    reason: str = ""
    hint: str = ""
    unlinked: tuple[str, ...] = ()
    fresh: Path | None = None  # the repaired file, to be put in place
    sha256: str = ""  # of the file that was read
    accepted: int = 0  # findings that a fix answers, and that an `[[ignore]]` accepts


def rules_with_fixes(fixes: Sequence[Fix] = FIXES) -> frozenset[str]:
    """What any fix answers."""
    return frozenset().union(*(fix.rules for fix in fixes))


def repairs(
    request: Request, wish: Wish, host: Host, scratch: Path, fixes: Sequence[Fix] = FIXES, *, runs: bool = True
) -> Iterator[Repair]:
    """Each model of the request with what would repair it; nothing is written but below `scratch`.

    Without `runs`, none of the planned runtimes can be started: the reference evaluator alone says what is computed.
    """
    request = replace(request, stages=frozenset(STATIC_STAGES) & request.stages)
    outcome = gate.run(request)
    numbers = itertools.count()
    for planned in outcome.planned:
        folder = scratch / str(next(numbers))
        folder.mkdir()
        workshop = _Workshop(request, wish, host, folder, tuple(fixes), outcome, planned, runs)
        yield replace(workshop.repair(), accepted=len(workshop.answered(accepted=True)))


@dataclass(slots=True)
class _Workshop:
    """One model on its way."""

    request: Request
    wish: Wish
    host: Host
    scratch: Path
    fixes: tuple[Fix, ...]
    before: Outcome
    planned: PlannedModel
    runs: bool

    def repair(self) -> Repair:
        model, findings = self.planned.model, self.answered(accepted=False)
        rules = frozenset(each.rule for each in findings)
        fixes = [fix for fix in self.fixes if fix.rules & rules]
        if self.planned.path not in self.before.gathered.facts or read_pointer(model.absolute):
            return self._away(findings)
        trying = Trying(self.planned, self.request.project, self.host, self.scratch, unsafe=self.wish.unsafe)
        try:
            trial = trying.tried(fixes, rules)
        except (OSError, UnreadableModel) as error:
            return replace(self._away(findings), reason=f"it cannot be repaired: {error}")
        told = Repair(model, "sound", findings, unsafe=tuple(trying.held_back), left=tuple(trying.left))
        if not trial.changes:
            state: State = "unsafe" if trying.held_back else "left" if trying.left else "sound"
            return replace(told, state=state, findings=findings if state != "sound" else ())
        return self._judged(trial, told)

    def answered(self, *, accepted: bool) -> tuple[Finding, ...]:
        """What some fix answers: what somebody accepted, or all else."""
        wanted = self.wish.rules or rules_with_fixes(self.fixes)
        answered = wanted & rules_with_fixes(self.fixes)
        return tuple(
            each
            for each in self.before.findings
            if each.model == self.planned.path and each.rule in answered and bool(each.ignored) == accepted
        )

    def _away(self, findings: tuple[Finding, ...]) -> Repair:
        reason, hint = self.before.gathered.away.get(self.planned.path, ("it cannot be read", ""))
        return Repair(self.planned.model, "away", findings, reason=reason, hint=hint)

    def _judged(self, trial: Trial, told: Repair) -> Repair:
        changes = [change for _, change in trial.changes]
        told = replace(
            told,
            words=tuple(word for change in changes for word in change.words),
            unlinked=tuple(name for change in changes for name in change.unlinked),
            fresh=trial.model.absolute,
            sha256=self.before.gathered.facts[self.planned.path].sha256,
        )
        old = as_it_was(self.planned, changes, self.scratch / "old")
        told = replace(told, difference=_difference(self.planned.path, old, trial.model.absolute))
        if objection := self._objection(trial):
            return replace(told, state="refuted", reason=objection)
        proof = self._proof(trial, old)
        told = replace(told, proof=proof)
        match proof.verdict:
            case "proven":
                return replace(told, state="repaired")
            case "refuted":
                return replace(told, state="refuted", reason="it would not compute the same")
            case "partly" if self.wish.unsafe:
                return replace(told, state="repaired")
            case "partly":
                said = "it is not proven on every locked runtime"
                return replace(told, state="unproven", reason=said, hint="`--unsafe` writes it all the same")
            case _:
                return replace(
                    told, state="unproven", reason=proof.reason or "it was compared nowhere", hint=proof.hint
                )

    def _objection(self, trial: Trial) -> str:
        """What the static stages have against the result; "" where what was wrong is gone, and nothing came."""
        outcome = gate.run(replace(self.request, models=(trial.model,)))
        expected = BY_NATURE.union(*(change.follows for _, change in trial.changes))
        was = {_key(each): {"", *each.runtimes} for each in self._of_model(self.before)}
        now = [each for each in self._of_model(outcome) if each.rule not in expected and each.level != "note"]
        come = next((each for each in now if not {"", *each.runtimes} <= was.get(_key(each), set())), None)
        if come is not None:
            return f"the result would have another fault: `{come.rule}`: {come.message}"
        left = {_key(each) for each in now}
        for fix, _ in trial.changes:
            concerned = {key for key in was if key[0] in fix.rules}
            if concerned <= left:
                return f"`{fix.name}` does not repair what was found"
        return ""

    def _of_model(self, outcome: Outcome) -> list[Finding]:
        return [each for each in outcome.findings if each.model == self.planned.path]

    def _proof(self, trial: Trial, old: Path) -> Proof:
        pair = Pair(
            model=self.planned.model,
            old=old,
            new=trial.model.absolute,
            renamed=trial.renamed,
            locked=self.request.lock.models.get(self.planned.path),
        )
        return proving.prove(pair, self._stands(), self.host, self._feed, self.scratch / "proof")

    def _stands(self) -> list[Stand]:
        runtimes = self.planned.runtimes if self.runs else ()
        pinned, folder = self.request.lock.pinned, self.request.project.folder
        return [Stand.of_runtime(each, Seat.of_runtime(each.runtime, pinned, folder)) for each in runtimes]

    def _feed(self, reading: Reading, folder: Path) -> Fed:
        project = self.request.project
        call = functools.partial(call_inputs, project, self.host)
        return feed(project, self.planned.model, reading, folder, call=call)


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.fingerprint


def _difference(name: str, old: Path, new: Path) -> Difference:
    return difference(Given(name, old), Given(f"{name} repaired", new), __version__)
