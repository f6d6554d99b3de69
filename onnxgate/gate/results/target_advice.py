"""Complete the fixes of findings on some releases with the releases on which the model has no errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from onnxgate.core.findings import Stage, runtime_sort_key, version_sort_key
from onnxgate.core.report import Finding

STAGES = frozenset(stage.value for stage in (Stage.SUPPORT, Stage.RUNTIME, Stage.PARITY))
"""Stages whose findings may depend on the release."""
_RAISE = re.compile(r"\braise the target to ([\d.]*\d)")
_RAISE_UNNAMED = re.compile(r"\braise `runtime` of the target\b|\braise the target's `runtime`")
_NARROW_UNNAMED = re.compile(r"(?P<before>, or )?\bnarrow the target to releases [\w ]+?(?P<after>, or |, | or |;|$)")


def name_working_releases(findings: Sequence[Finding], required: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Return the findings of a check with releases in the fixes of those that concern only some releases.

    `required` maps each model to the names of its runtimes. A release that a fix already names may still have another
    error, and is then replaced.
    """
    return [_complete_fix(finding, findings, required.get(finding.model, ())) for finding in findings]


def _complete_fix(finding: Finding, findings: Sequence[Finding], runtimes: Sequence[str]) -> Finding:
    engines = {name.partition(" ")[0] for name in finding.runtimes}
    if len(engines) != 1 or finding.level == "note" or finding.stage not in STAGES or not finding.fix:
        return finding
    errors = [it for it in findings if it.model == finding.model and it.level == "error" and not it.ignored]
    locked = sorted((name for name in runtimes if name.partition(" ")[0] in engines), key=runtime_sort_key)
    causes = [it for it in (finding, *errors) if not it.runtimes or not set(locked).isdisjoint(it.runtimes)]
    affected = [any(not it.runtimes or name in it.runtimes for it in causes) for name in locked]
    releases = [name.partition(" ")[2] for name in locked]
    if len(set(affected)) < 2:
        fix = _NARROW_UNNAMED.sub(_drop_narrowing, finding.fix) if all(affected) and locked[1:] else finding.fix
    elif affected == sorted(affected, reverse=True):
        fix = _name_release(finding, _find_first_release(causes, affected, releases))
    elif affected == sorted(affected):
        newest = releases[affected.index(True) - 1]
        fix = _NARROW_UNNAMED.sub(rf"\g<before>narrow the target to <={newest}\g<after>", finding.fix)
    else:
        fix = finding.fix
    return msgspec.structs.replace(finding, fix=fix) if fix != finding.fix else finding


def _drop_narrowing(match: re.Match[str]) -> str:
    """Return what remains of a fix around the advice to narrow the target, if no release has no error."""
    is_only = match.start() == 0 and match.end() == len(match.string)
    return match[0] if is_only else match["after"] if match["before"] else ""


def _find_first_release(causes: Sequence[Finding], affected: Sequence[bool], releases: Sequence[str]) -> str:
    """Return the first release since which none is affected; if only locked releases are known, the minor release."""
    last = len(affected) - 1 - affected[::-1].index(True)
    before, after = releases[last], releases[last + 1]
    since = max((cause.works_since for cause in causes), key=version_sort_key)
    is_known = all(cause.works_since for cause in causes)
    if is_known and version_sort_key(before) < version_sort_key(since) <= version_sort_key(after):
        return since
    minor = ".".join(after.split(".")[:2])
    return minor if version_sort_key(minor) > version_sort_key(before) else after


def _name_release(finding: Finding, release: str) -> str:
    """Return the fix with the release, in place of an older one or of a phrase that names none.

    It is added to the fixes of errors, but not of warnings, whose cause may be the user's own inputs.
    """
    fix = finding.fix
    if match := _RAISE.search(fix):
        is_older = version_sort_key(match[1]) < version_sort_key(release)
        return _RAISE.sub(f"raise the target to {release}", fix) if is_older else fix
    if _RAISE_UNNAMED.search(fix):
        return _RAISE_UNNAMED.sub(f"raise the target to {release}", fix)
    if _NARROW_UNNAMED.search(fix):
        return _NARROW_UNNAMED.sub(rf"\g<before>narrow the target to >={release}\g<after>", fix)
    return f"{fix}, or narrow the target to >={release}" if finding.level == "error" else fix
