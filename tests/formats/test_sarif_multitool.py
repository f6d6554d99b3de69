"""Microsoft's SARIF Multitool, with its GitHub rules enabled, accepts the logs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from onnxgate.core.report import Report, ReportedModel, ReportedPlace
from onnxgate.formats import sarif
from tests.harness.reports.hostile_reports import ATTACKS
from tests.harness.reports.sample_reports import finding, not_done, report, sample

PACKAGE = "@microsoft/sarif-multitool-linux@5.7.0"
# Rules that are off by default: GitHub's requirements for locations, regions, long arrays and URIs.
ASKED = (
    "GH1001.ProvideRequiredLocationProperties",
    "GH1003.ProvideRequiredRegionProperties",
    "GH1004.ReviewArraysThatExceedConfigurableDefaults",
    "GH1005.LocationsMustBeRelativeUrisOrFilePaths",
)
NO_REGION = {"GH1003", "SARIF2017"}
"""Rules that fail for a result in a binary file, which has no lines."""
HOSTILE = "".join(attack for attack in ATTACKS if "\n" not in attack)

pytestmark = pytest.mark.surface


@pytest.fixture(scope="session")
def multitool(shared_folder: Path) -> Path:
    """Return the tool, installed from npm; skip the test if it cannot be installed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    if sys.platform != "linux":
        pytest.skip("the package is for Linux")
    home = shared_folder / "multitool"
    with FileLock(shared_folder / "multitool.lock"):
        if not home.exists():
            _install(npm, home)
    program = home / "node_modules" / "@microsoft" / "sarif-multitool-linux" / "Sarif.Multitool"
    if not program.exists():
        pytest.skip(f"{PACKAGE} could not be installed: {(home / 'trouble').read_text(encoding='utf-8')}")
    return program


def _install(npm: str, home: Path) -> None:
    home.mkdir()
    command = [npm, "install", "--prefix", str(home), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=home, stdin=subprocess.DEVNULL)
    (home / "trouble").write_text(" ".join(done.stderr.split())[-500:], encoding="utf-8")
    for program in home.glob("node_modules/@microsoft/*/Sarif.Multitool"):
        program.chmod(0o755)


def findings(multitool: Path, folder: Path, judged: Report) -> list[tuple[str, str]]:
    """Return the rule and location of each error and warning for a report's log."""
    options = "".join(
        f'<Properties Key="{rule}.Options">'
        '<Property Key="RuleEnabled" Value="Error" Type="Driver.RuleEnabledState" /></Properties>'
        for rule in ASKED
    )
    (folder / "rules.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?><Properties>{options}</Properties>')
    (folder / "log.sarif").write_text(sarif.format(judged), encoding="utf-8")
    command = [multitool, "validate", "log.sarif", "--rule-kind", "Sarif;Ghas", "--level", "Error;Warning"]
    command += ["-c", "rules.xml", "-o", "out.sarif", "--log", "ForceOverwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, stdin=subprocess.DEVNULL)
    (run,) = json.loads((folder / "out.sarif").read_text(encoding="utf-8-sig"))["runs"]
    assert "Analysis completed successfully" in done.stdout
    return [(each["ruleId"], each["message"]["arguments"][0]) for each in run.get("results", [])]


def hostile() -> Report:
    """Return a report in which every string that a model or repository can choose is an attack."""
    lines = [ReportedPlace(path=HOSTILE, line=line) for line in (1, 2)]
    return report(
        folder=HOSTILE,
        models=(ReportedModel(path=f"{HOSTILE}.onnx", sha256="0" * 64),),
        findings=tuple(
            finding(HOSTILE, model=f"{HOSTILE}.onnx", node=HOSTILE, fix=HOSTILE, place=place) for place in lines
        ),
        undecided=not_done([HOSTILE], hint=HOSTILE),
        verdict="fail",
        exit=1,
    )


@pytest.mark.parametrize(
    "judged",
    [hostile(), report(), report(verdict="undecided", exit=3, undecided=not_done())],
    ids=["hostile", "an empty pass", "undecided"],
)
def test_validator_reports_no_problem(multitool: Path, tmp_path: Path, judged: Report) -> None:
    """Neither the rules of the standard nor those of GitHub report a problem."""
    assert findings(multitool, tmp_path, judged) == []


def test_only_a_binary_has_no_region(multitool: Path, tmp_path: Path) -> None:
    """The only result without a region is for a model file, which has no lines."""
    actual = findings(multitool, tmp_path, sample())
    log = json.loads((tmp_path / "log.sarif").read_text(encoding="utf-8"))
    uris = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in log["runs"][0]["results"]
    ]
    binary = uris.index("ml/models/tagger.onnx")

    assert set(actual) == {(rule, f"runs[0].results[{binary}].locations[0].physicalLocation") for rule in NO_REGION}


def test_the_tool_does_look(multitool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose rules have no help page is rejected, so the tool does check the logs."""
    monkeypatch.setattr(sarif, "describe_rules", lambda rules: [{"id": rule} for rule in rules])

    assert ("GH2012", "runs[0].tool.driver.rules[0]") in findings(multitool, tmp_path, report(findings=(finding(),)))
