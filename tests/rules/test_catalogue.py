"""All rules on all fixture cases, and the catalog of rules."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import onnxgate.rules
from onnxgate import rules
from onnxgate.evidence.lock import ModelChange
from tests.harness.rule_cases import CASES, change_of, every_case, findings_of, judged_by_all, say, unfold

RULE_FILES = sorted(
    path
    for path in Path(onnxgate.rules.__file__).parent.glob("*/*.py")
    if path.name != "__init__.py" and not path.name.startswith("_")
)


def fires(case: Path) -> bool:
    """Return whether the case expects a finding of its rule."""
    return f" {case.parent.name} " in (case / "expected.txt").read_text(encoding="utf-8")


FIRING = {case.parent.name for case in every_case() if fires(case)}
SILENT = {case.parent.name for case in every_case() if not fires(case)}


@pytest.mark.parametrize("case", every_case(), ids=lambda case: f"{case.parent.name}/{case.name}")
def test_case(case: Path, tmp_path: Path) -> None:
    """All rules together report exactly the expected findings, and each error has a fix."""
    unfold(case, tmp_path)
    findings = findings_of(tmp_path)

    assert say(findings) == "".join(sorted((case / "expected.txt").read_text().splitlines(keepends=True)))
    assert [] == [finding.rule for finding in findings if finding.level == "error" and not finding.fix]


CASES_OF_CHANGE = [case for case in every_case() if (case / "before.onnxtxt").exists()]


@pytest.mark.parametrize("case", CASES_OF_CHANGE, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_unchanged_model_has_no_finding(case: Path, tmp_path: Path) -> None:
    """Rules about changes are silent if a model equals its baseline."""
    unfold(case, tmp_path)
    change = change_of(tmp_path)
    for facts in (change.before, change.after):
        same = msgspec.structs.replace(change, before=facts, after=facts, weights=None, minimums=())

        assert [] == judged_by_all([same])


def test_every_rule_about_changes_has_a_case() -> None:
    """The test above covers all rules about changes."""
    about_change = {rule.id for rule in rules.ALL if rule.subject is ModelChange}

    assert about_change == {case.parent.name for case in CASES_OF_CHANGE}


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.id)
def test_rule_has_cases(rule: rules.AnyRule) -> None:
    """Each rule has a case in which it fires and a near miss in which it is silent."""
    assert (rule.id in FIRING, rule.id in SILENT) == (True, True)


def test_rule_files_match_their_rules() -> None:
    """The file of a rule has its name and is in the folder of its stage; the catalog contains every file."""
    listed = sorted(f"{rule.stage.value}/{rule.id}" for rule in rules.ALL)

    assert listed == sorted(f"{path.parent.name}/{path.stem.replace('_', '-')}" for path in RULE_FILES)


def test_every_case_belongs_to_a_rule() -> None:
    """Cases of unknown rules would not be tested."""
    assert {path.name for path in CASES.iterdir()} <= set(rules.by_id)


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.id)
def test_page(rule: rules.AnyRule) -> None:
    """A page states the finding in one sentence, why it matters and what to do."""
    page = rule.page

    assert (rule.summary.endswith("."), "## Why it matters" in page, "## What to do" in page) == (True, True, True)
