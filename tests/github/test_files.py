"""The files that GitHub and hook runners read: they agree with each other and with the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxgate.cli.action import Outcome
from onnxgate.cli.action_inputs import NAMES, variable
from tests.github.checkout import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml")) + sorted(
    ROOT.glob("fixtures/projects/*/.github/*/*.yml")
)
OURS = ("./", "onnxgate/onnxgate@")


def steps_of(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def test_every_input_reaches_the_step_that_reads_it() -> None:
    """Each input is passed as the variable of its name; `python-version` is for the step that sets Python up."""
    gate = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    passed = {name: value for name, value in gate["env"].items() if name.startswith("ONNXGATE_INPUT_")}

    expected = {variable(name): f"${{{{ inputs.{name} }}}}" for name in NAMES}
    assert expected == passed
    assert {*NAMES, "python-version"} == set(ACTION["inputs"])


def test_every_output_is_one_that_the_step_writes() -> None:
    """Each output is that of the gate's step, by the same name."""
    names = [field.name.replace("_", "-") for field in fields(Outcome)]
    values = {name: about["value"] for name, about in ACTION["outputs"].items()}

    expected = {name: f"${{{{ steps.gate.outputs.{name} }}}}" for name in names}
    assert expected == values


@pytest.mark.parametrize(
    "step", [step for step in ACTION["runs"]["steps"] if "run" in step], ids=lambda step: step["name"]
)
def test_no_script_is_filled_in(step: dict[str, Any]) -> None:
    """Values reach a script by its environment alone, and an error in it ends it."""
    assert "${{" not in step["run"]
    assert step["run"].startswith("set -euo pipefail\n")
    assert step["shell"] == "bash"


@pytest.mark.parametrize("path", [ROOT / "action.yml", *WORKFLOWS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_others_wrote_is_pinned(path: Path) -> None:
    """An action of somebody else is named by its commit, with the release beside it."""
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))

    foreign = [name for name in used if not name.startswith(OURS)]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", name) for name in foreign)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_workflows_use_only_inputs_and_outputs_that_exist(path: Path) -> None:
    """GitHub warns of an unknown input and reads an unknown output as empty; both would go unseen."""
    steps = [step for step in steps_of(path) if step.get("uses", "").startswith(OURS)]
    given = {name for step in steps for name in step.get("with", {})}
    read = set(re.findall(r"steps\.gate\.outputs\.([\w-]+)", path.read_text(encoding="utf-8")))

    assert given <= set(ACTION["inputs"])
    assert read <= set(ACTION["outputs"])


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=lambda path: path.name)
def test_a_table_of_inputs_names_all_of_them(path: Path) -> None:
    """Where a page has a table of the action's inputs or outputs, it has each one, and its default."""
    text = path.read_text(encoding="utf-8")
    for kind in ("input", "output"):
        table = re.search(rf"^\| {kind} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
        named = re.findall(r"^\| `([\w-]+)`", table[1], re.MULTILINE) if table else list(ACTION[f"{kind}s"])

        assert sorted(ACTION[f"{kind}s"]) == sorted(named)


@pytest.mark.parametrize(
    ("hook", "name", "expected"),
    [
        ("onnxgate", "models/a.onnx", True),
        ("onnxgate", "a.onnx.data", True),
        ("onnxgate", "a.onnx_data", True),
        ("onnxgate", "weights.bin", True),
        ("onnxgate", "a.onnx.md", False),
        ("onnxgate", "onnxgate.toml", False),
    ],
)
def test_the_first_hook_is_for_models_and_their_data(hook: str, name: str, expected: bool) -> None:
    """It starts for these, and for nothing else."""
    actual = re.search(HOOKS[hook]["files"], name) is not None

    assert expected == actual


@pytest.mark.parametrize("hook", ["onnxgate-lock", "onnxgate-run"])
def test_the_other_hooks_always_run(hook: str) -> None:
    """A deleted model is no file that a hook is given, and any file can change what an export writes."""
    assert (HOOKS[hook]["always_run"], HOOKS[hook]["pass_filenames"], "files" in HOOKS[hook]) == (True, False, False)
