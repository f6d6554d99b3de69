"""Changes to the target in the fixes of findings that concern only some releases."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

import msgspec
import pytest

from onnxgate.core.advice import Action
from onnxgate.core.findings import Hit, Level, Place, RuleHit, Stage
from onnxgate.core.report import Cell, CellState, Finding
from onnxgate.gate.results.target_advice import suggest_target_changes
from tests.harness.reports.sample_reports import finding, report, runtime

LOCKED = tuple(f"onnxruntime {release}" for release in ("1.18.1", "1.20.1", "1.21.1", "1.22.0"))
OLD, NEW = LOCKED[:2], LOCKED[2:]


def fixes(
    *findings: Finding,
    locked: Sequence[str] = LOCKED,
    unpredicted: Sequence[str] = (),
    warned: Sequence[str] = (),
    compared: Sequence[str] = (),
    targets: Mapping[str, Sequence[str]] = MappingProxyType({}),
    inherent: Sequence[Finding] = (),
) -> list[str]:
    """Return the fixes of findings about one model after changes to the target were added.

    Every release needs the fixes of the findings in `inherent`.
    """
    failing = {name for it in findings if it.level == "error" and not it.ignored for name in it.runtimes or locked}
    states = {**dict.fromkeys(locked, "pass"), **dict.fromkeys(failing & set(locked), "fail")}
    states |= dict.fromkeys(unpredicted, "not predicted") | dict.fromkeys(warned, "warning")
    cells = tuple(
        Cell(model="m.onnx", runtime=name, state=cast("CellState", state), compared=name in compared)
        for name, state in states.items()
    )
    runtimes = [
        msgspec.structs.replace(runtime(name.split()[1], name.split()[0]), target=target)
        for target, names in (targets or {"server": locked}).items()
        for name in names
    ]
    checked = report(cells=cells, findings=findings, runtimes=tuple(runtimes))
    judged = [create_hit(it, everywhere=it in inherent) for it in findings]
    return [it.fix for it in suggest_target_changes(checked, judged).findings]


def create_hit(finding: Finding, *, everywhere: bool) -> RuleHit:
    """Return the hit that became a finding."""
    hit = Hit(Place("m.onnx"), finding.message, fix=(Action(finding.fix, everywhere=everywhere),))
    return RuleHit(
        finding.rule, Stage(finding.stage), Level(finding.level), hit, fingerprint=finding.fingerprint or "f"
    )


@pytest.mark.parametrize(
    ("fix", "runtimes", "works_since", "expected"),
    [
        ("cast the input", OLD, "", "cast the input, or narrow the target to >=1.21"),
        ("cast the input", OLD, "1.21.0", "cast the input, or narrow the target to >=1.21.0"),
        ("cast the input", OLD, "1.19.0", "cast the input, or narrow the target to >=1.21"),
        ("cast the input", LOCKED, "1.30.0", "cast the input, or raise the target to >=1.30.0"),
        ("cast the input", NEW, "", "cast the input, or narrow the target to <=1.20.1"),
        ("", OLD, "", "narrow the target to >=1.21"),
        ("cast the input", (LOCKED[1],), "", "cast the input, or add `!=1.20.*` to the target"),
        ("cast the input", LOCKED[1:3], "", "cast the input, or add `!=1.20.*` and `!=1.21.*` to the target"),
        ("cast the input", (LOCKED[0], LOCKED[3]), "", "cast the input"),
        ("cast the input", LOCKED, "", "cast the input"),
        ("cast the input", (), "", "cast the input"),
    ],
)
def test_fixes_name_the_releases_without_the_fault(
    fix: str, runtimes: tuple[str, ...], works_since: str, expected: str
) -> None:
    """A target that cannot be changed is not offered, and one that can is offered with its first or last release."""
    assert fixes(finding(fix=fix, runtimes=runtimes, works_since=works_since)) == [expected]


def test_the_release_has_no_other_error() -> None:
    """Following one fix does not lead to the next error of the same model."""
    first = finding(fix="cast", runtimes=OLD[:1], works_since="1.19.0")
    second = finding(fix="export", runtimes=OLD, works_since="1.21.0")

    assert fixes(first, second) == [f"{it}, or narrow the target to >=1.21.0" for it in ("cast", "export")]
    assert fixes(first, finding(fix="x", runtimes=OLD, ignored="known"))[0] == "cast, or narrow the target to >=1.19.0"


@pytest.mark.parametrize("runtimes", [(), LOCKED])
def test_errors_on_all_releases_do_not_change_the_release(runtimes: tuple[str, ...]) -> None:
    """They remain on each release, so that they must be repaired in the model."""
    first = finding(fix="cast", runtimes=OLD[:1], works_since="1.19.0")
    everywhere = finding(fix="repair", runtimes=runtimes)

    assert fixes(first, everywhere) == ["cast, or narrow the target to >=1.19.0", "repair"]


def test_releases_without_a_prediction_are_not_offered() -> None:
    """A release whose kernels are unknown may refuse the model for another reason."""
    error = finding(fix="cast", runtimes=OLD[:1], works_since="1.19.0")

    assert fixes(error, unpredicted=LOCKED[1:2]) == ["cast, or narrow the target to >=1.21"]
    assert fixes(error, unpredicted=LOCKED[3:]) == ["cast, or narrow the target to >=1.19.0"]
    assert fixes(error, unpredicted=LOCKED[1:]) == ["cast"]


def test_a_warning_does_not_hide_that_there_is_no_prediction() -> None:
    """The state of a release with a warning is `warning`, whether it is known to load the model or not."""
    error = finding(fix="cast", runtimes=OLD)
    gap = finding(fix="", level="note", rule="no-support-data", runtimes=NEW)

    assert fixes(error, warned=NEW) == ["cast, or narrow the target to >=1.21"]
    assert fixes(error, gap, warned=NEW) == ["cast", ""]


def test_a_wrong_constant_is_not_avoided_by_another_release() -> None:
    """Releases that load the model, or that did not reach the node, fail when they compute it."""
    wrong = finding(fix="correct the constant", runtimes=OLD, fingerprint="a")

    assert fixes(wrong, inherent=[wrong]) == [wrong.fix]
    assert fixes(wrong) == [f"{wrong.fix}, or narrow the target to >=1.21"]


def test_a_crash_because_of_a_wrong_constant_is_not_avoided_by_another_release() -> None:
    """Releases that do not crash refuse the model because of the same constant."""
    wrong = finding(fix="correct the constant", runtimes=LOCKED, fingerprint="a")
    crash = finding(fix="report it", rule="runtime-crashed", stage="runtime", runtimes=OLD)

    assert fixes(crash, wrong, inherent=[wrong]) == ["report it", wrong.fix]
    assert fixes(crash, wrong)[0] == "report it, or narrow the target to >=1.21"


def test_findings_that_do_not_depend_on_releases_stay() -> None:
    """Notes, findings about several engines, and findings of other stages name no release."""
    note = finding(fix="cast the input", runtimes=OLD, level="note")
    both = finding(fix="cast the input", runtimes=(*OLD, "openvino 2024.1.0"))
    budget = finding(fix="cast the input", runtimes=OLD, stage="budget")

    assert fixes(note, both, budget) == ["cast the input"] * 3
    assert fixes(finding(fix="cast the input", runtimes=OLD, works_since="1.30.0"), locked=()) == ["cast the input"]


def test_a_target_is_not_raised_to_a_locked_release() -> None:
    """If all locked releases fail, the release that repairs one error has another one."""
    first = finding(fix="convert", runtimes=OLD, works_since="1.21.0")
    second = finding(fix="cast", runtimes=NEW)

    assert fixes(first, second) == ["convert", "cast"]
    assert fixes(first, msgspec.structs.replace(second, works_since="1.21.0")) == ["convert", "cast"]
    assert fixes(first, msgspec.structs.replace(second, works_since="1.30.0")) == [
        f"{fix}, or raise the target to >=1.30.0" for fix in ("convert", "cast")
    ]


def test_a_raised_target_repairs_all_errors() -> None:
    """Errors on all locked releases offer the same newer release, and none if one of them has none."""
    first = finding(fix="lower", runtimes=LOCKED, works_since="1.24.1")
    second = finding(fix="convert", runtimes=LOCKED, works_since="1.25.0")
    never = finding(fix="cast", runtimes=LOCKED)

    assert fixes(first, second) == [f"{fix}, or raise the target to >=1.25.0" for fix in ("lower", "convert")]
    assert fixes(first, never) == ["lower", "cast"]


def test_releases_that_were_not_compared_with_the_source_are_not_offered() -> None:
    """A release on which nothing was compared may return the same wrong outputs."""
    difference = finding(fix="export", rule="source-mismatch", stage="parity", runtimes=LOCKED[3:])

    assert fixes(difference) == ["export"]
    assert fixes(difference, compared=(LOCKED[1], LOCKED[3])) == ["narrow the target to <=1.20.1, or export"]


def test_releases_that_agree_come_before_acceptance() -> None:
    """A difference of some releases is not accepted first."""
    difference = finding(fix="set `tolerance`", runtimes=OLD, stage="parity")

    assert fixes(difference) == ["narrow the target to >=1.21, or set `tolerance`"]


def test_the_cause_of_a_warning_may_be_the_inputs() -> None:
    """A warning offers a release only if it is known to have no such problem."""
    warnings = [finding(fix="cast", runtimes=OLD, level="warning", works_since=since) for since in ("", "1.21.0")]

    assert fixes(*warnings) == ["cast", "cast, or narrow the target to >=1.21.0"]


def test_an_exact_release_is_excluded_if_others_of_its_minor_release_work() -> None:
    """Excluding the whole minor release would exclude releases that were checked and work."""
    locked = ("onnxruntime 1.23.2", "onnxruntime 1.24.1", "onnxruntime 1.24.2")
    error = finding(fix="copy the data", runtimes=locked[1:2])

    assert fixes(error, locked=locked) == ["copy the data, or add `!=1.24.1` to the target"]


@pytest.mark.parametrize(
    ("runtimes", "more", "expected"),
    [
        (OLD, {}, "cast, or raise the target to >=1.21"),
        (OLD, {"works_since": "1.20.2"}, "cast, or raise the target to >=1.20.2"),
        (NEW, {}, 'cast, or set `targets = ["old"]` for the model'),
        (OLD[:1], {}, "cast, or narrow the target to >=1.20"),
        (LOCKED, {}, "cast"),
    ],
)
def test_a_target_that_fails_entirely_is_not_narrowed(
    runtimes: tuple[str, ...], more: dict[str, str], expected: str
) -> None:
    """The releases that work belong to another target, so that narrowing or excluding would leave none."""
    assert fixes(finding(fix="cast", runtimes=runtimes, **more), targets={"old": OLD, "new": NEW}) == [expected]


def test_only_targets_on_which_the_model_has_no_error_are_offered() -> None:
    """A model that also fails on the other engine would fail again."""
    web = ("onnxruntime-web 1.22.0",)
    targets, locked = {"server": NEW, "web": web}, (*NEW, *web)
    crash = finding(fix="report it", rule="runtime-crashed", runtimes=web)
    other = finding(fix="cast", runtimes=NEW[:1])

    assert fixes(crash, locked=locked, targets=targets) == ['report it, or set `targets = ["server"]` for the model']
    assert fixes(crash, other, locked=locked, targets=targets)[0] == "report it"
    assert fixes(crash, locked=locked, targets=targets, unpredicted=NEW) == ["report it"]


def test_many_findings_cost_little() -> None:
    """Findings are not compared with each other finding of the model, which would be quadratic."""
    findings = [finding(f"operator {index}", runtimes=OLD, works_since="1.21.0") for index in range(3000)]
    before = time.process_time()

    advice = fixes(*findings)

    assert len(findings) == len(advice)
    assert {"narrow the target to >=1.21.0"} == {fix.rpartition(", or ")[2] for fix in advice}
    assert time.process_time() - before < 4
