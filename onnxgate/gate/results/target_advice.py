"""Changes to the target as a way out of findings that concern only some releases."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence, Set

import msgspec

from onnxgate.core.advice import Action
from onnxgate.core.findings import RuleHit, Stage, assign_fingerprints, runtime_sort_key, version_sort_key
from onnxgate.core.report import Cell, Finding, Report
from onnxgate.core.text import join_phrases

STAGES = frozenset(stage.value for stage in (Stage.SUPPORT, Stage.RUNTIME, Stage.PARITY))
"""Stages whose findings may depend on the release."""
KNOWN_STATES = frozenset({"pass", "warning", "predicted", "fail"})
"""States of releases on which all errors of the model are known."""
GAP_RULE = "no-support-data"
"""Rule that names releases of which it is unknown whether they run a model, even if the state is a warning."""
MAX_EXCLUDED = 2
"""Maximum number of releases that are excluded from a target; for more, the target is narrowed."""


def suggest_target_changes(report: Report, judged: Sequence[RuleHit]) -> Report:
    """Return the report with changes to the target added to the fixes of findings that concern only some releases.

    `judged` are the hits of the check. After the change, the model has no other error that depends on the release. If
    the fix is needed on every release, no change is suggested. For warnings, whose cause may be the user's own inputs,
    the first release without the problem must be known.
    """
    inherent = {it.fingerprint for it in assign_fingerprints(judged) if _is_fix_needed_everywhere(it)}
    cells: dict[str, list[Cell]] = {}
    gaps = {(it.model, runtime) for it in report.findings if it.rule == GAP_RULE for runtime in it.runtimes}
    for cell in report.cells:
        is_unpredicted = cell.state == "warning" and (cell.model, cell.runtime) in gaps
        known = msgspec.structs.replace(cell, state="not predicted") if is_unpredicted else cell
        cells.setdefault(cell.model, []).append(known)
    errors: dict[str, dict[object, Finding]] = {}  # one of those that differ in nothing that is read here
    for finding in report.findings:
        if finding.level == "error" and not finding.ignored:
            key = finding.runtimes, finding.works_since, finding.rule, finding.stage, finding.fingerprint in inherent
            errors.setdefault(finding.model, {}).setdefault(key, finding)
    targets: dict[str, set[str]] = {}
    for runtime in report.runtimes:
        targets.setdefault(runtime.target, set()).add(f"{runtime.engine} {runtime.version}")
    findings = (
        _complete_fix(it, tuple(errors.get(it.model, {}).values()), cells.get(it.model, ()), targets, inherent)
        for it in report.findings
    )
    return msgspec.structs.replace(report, findings=tuple(findings))


def _complete_fix(
    finding: Finding,
    errors: Sequence[Finding],
    cells: Sequence[Cell],
    targets: Mapping[str, Set[str]],
    inherent: Set[str],
) -> Finding:
    engines = {name.partition(" ")[0] for name in finding.runtimes}
    is_concerned = finding.level == "error" or (finding.level == "warning" and finding.works_since)
    if len(engines) != 1 or not is_concerned or finding.stage not in STAGES or finding.fingerprint in inherent:
        return finding
    own = sorted(
        (it for it in cells if it.runtime.partition(" ")[0] in engines), key=lambda it: runtime_sort_key(it.runtime)
    )
    names = {cell.runtime for cell in own}
    concerned = [(it, names.intersection(it.runtimes)) for it in errors]
    causes = [finding, *(it for it, shared in concerned if shared and (shared < names or it.fingerprint in inherent))]
    everywhere = [it for it in errors if it.stage in STAGES and names <= set(it.runtimes)]
    others = _find_other_targets(finding, {cell.runtime for cell in cells}, targets)
    change = "".join(_find_target_change(finding, causes, everywhere, own, fails_entirely=bool(others)))
    good = {cell.runtime for cell in cells if _is_known(cell, causes) and cell.state != "fail"}
    working = sorted(name for name, runtimes in others.items() if runtimes <= good)
    if not change and working and finding.level == "error":
        change = f"set `targets = {json.dumps(working, ensure_ascii=False)}` for the model"
    # In the parity stage, the other ways accept the difference or concern all releases.
    ways = (change, finding.fix) if finding.stage == Stage.PARITY.value else (finding.fix, change)
    return msgspec.structs.replace(finding, fix=", or ".join(filter(None, ways)))


def _is_fix_needed_everywhere(judged: RuleHit) -> bool:
    """Return whether the finding of a hit has a fix that releases without the finding need as well."""
    fix = judged.hit.fix
    is_reported = not judged.silent and not isinstance(fix, str)
    return is_reported and any(isinstance(way, Action) and way.everywhere for way in fix)


def _find_other_targets(finding: Finding, required: Set[str], targets: Mapping[str, Set[str]]) -> dict[str, Set[str]]:
    """Return the model's targets without the finding; empty if the finding spares a release of another target."""
    own = {name: required & runtimes for name, runtimes in targets.items() if required & runtimes}
    failing = set(finding.runtimes)
    others = {name: runtimes for name, runtimes in own.items() if not runtimes & failing}
    concerned = [runtimes for name, runtimes in own.items() if name not in others]
    return others if concerned and all(runtimes <= failing for runtimes in concerned) else {}


def _find_target_change(
    finding: Finding,
    causes: Sequence[Finding],
    everywhere: Sequence[Finding],
    cells: Sequence[Cell],
    *,
    fails_entirely: bool,
) -> Iterator[str]:
    """Yield the change after which only releases without errors are required, if there is one.

    Errors on all of these releases (`everywhere`) matter only if the target is raised to newer releases. If a target
    `fails_entirely`, the releases without errors belong to other targets, so that it cannot be narrowed.
    """
    failing = [any(it.runtime in cause.runtimes for cause in causes) for it in cells]
    working = [_is_known(it, causes) and not fails for it, fails in zip(cells, failing, strict=True)]
    releases = [it.runtime.partition(" ")[2] for it in cells]
    failed = [index for index, fails in enumerate(failing) if fails] or [len(cells)]
    last = failed[-1]
    is_between = True in working[last:] and True in working[: failed[0]] and not fails_entirely
    excluded = _list_exclusions(releases[failed[0] : last + 1], set(itertools.compress(releases, working)))
    if is_between and len(excluded) <= MAX_EXCLUDED:
        yield f"add {join_phrases([f'`!={release}`' for release in excluded])} to the target"
    elif True in working[last:]:
        after = working.index(True, last)
        verb = "raise" if fails_entirely else "narrow"
        yield f"{verb} the target to >={_find_first_release(causes, releases[after - 1], releases[after])}"
    elif True not in working:
        sinces = [cause.works_since for cause in (*causes, *everywhere)]
        since = max(sinces, key=version_sort_key)
        if all(sinces) and releases and version_sort_key(since) > version_sort_key(releases[-1]):
            yield f"raise the target to >={since}"
    elif finding.level == "error" and True in working[: failed[0]] and not fails_entirely:
        yield f"narrow the target to <={max(itertools.compress(releases, working[: failed[0]]), key=version_sort_key)}"


def _list_exclusions(failing: Sequence[str], working: Collection[str]) -> list[str]:
    """Return the versions to exclude: minor releases, or exact releases if others of the same minor release work.

    If only one patch of a minor release is locked, excluding it would select the next patch, which was not checked.
    """
    tested = {_minor(release) for release in working}
    return list(dict.fromkeys(it if _minor(it) in tested else f"{_minor(it)}.*" for it in failing))


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _is_known(cell: Cell, causes: Sequence[Finding]) -> bool:
    """Return whether all errors on a release are known: differences from the source only if it was compared."""
    return cell.state in KNOWN_STATES and (cell.compared or all(it.rule != "source-mismatch" for it in causes))


def _find_first_release(causes: Sequence[Finding], before: str, after: str) -> str:
    """Return the first release without the causes; if only locked releases are known, the minor release of `after`."""
    oldest = version_sort_key(before)
    since = max((cause.works_since for cause in causes), key=version_sort_key)
    is_known = all(cause.works_since for cause in causes)
    if is_known and oldest < version_sort_key(since) <= version_sort_key(after):
        return since
    minor = _minor(after)
    return minor if version_sort_key(minor) > oldest else after
