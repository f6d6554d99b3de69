"""Files read by GitHub and hook runners are consistent with each other and with the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxgate import __version__
from onnxgate.commands.init.generated_files import CHECKOUT_ACTION, SETUP_PYTHON_ACTION
from onnxgate.github.action import ActionOutputs, InternalOutputs
from onnxgate.github.cache import CacheOutputs
from onnxgate.github.install import InstallOutputs, SetupOutputs
from onnxgate.github.pull_request import Outcome
from onnxgate.github.step import INPUT_DEFAULTS, INPUT_NAMES, input_variable
from onnxgate.project.toml import loads
from tests.harness.repositories.checkout import ROOT

ACTIONS = tuple(ROOT / folder / "action.yml" for folder in ("", "comment", "pull-request"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
WORKFLOWS = [
    path
    for where in (".github/workflows", "examples", "fixtures/projects/*/.github/*")
    for path in ROOT.glob(f"{where}/*.yml")
]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
OURS = ("./", "onnxgate/onnxgate@", "onnxgate/onnxgate/")


def steps_of(path: Path) -> list[dict[str, Any]]:
    """Return all steps of a workflow."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    return [step for job in jobs for step in job.get("steps", [])]


@pytest.mark.parametrize("step", ["kept", "gate"])
def test_every_input_reaches_the_step_that_reads_it(step: str) -> None:
    """Each input is passed in the variable of its name, except those that only other steps use."""
    env = next(each["env"] for each in ACTION["runs"]["steps"] if each.get("id") == step)
    passed = {name: value for name, value in env.items() if name.startswith("ONNXGATE_INPUT_")}

    expected = {input_variable(name): f"${{{{ inputs.{name} }}}}" for name in INPUT_NAMES}
    assert expected == passed
    assert {*INPUT_NAMES, "python-version", "token"} == set(ACTION["inputs"])


def test_defaults_are_the_ones_that_are_read() -> None:
    """An omitted input has the same effect as an empty one."""
    defaults = {name: about["default"] for name, about in ACTION["inputs"].items() if name in INPUT_NAMES}

    assert {name: INPUT_DEFAULTS.get(name, "") for name in INPUT_NAMES} == defaults


def test_only_the_comment_step_has_the_token() -> None:
    """Steps that run the repository's code do not have the token in their environment."""
    having = [step["name"] for step in ACTION["runs"]["steps"] if "token" in str(step)]

    assert ["Comment on the pull request"] == having


def test_every_output_is_one_that_the_step_writes() -> None:
    """Each output of the action is the output of the same name of the `gate` step."""
    names = [field.name.replace("_", "-") for field in fields(ActionOutputs)]
    values = {name: about["value"] for name, about in ACTION["outputs"].items()}

    without_gate = {"verdict": " || 'undecided'", "exit-code": " || '3'"}  # if onnxgate could not be installed
    expected = {name: f"${{{{ steps.gate.outputs.{name}{without_gate.get(name, '')} }}}}" for name in names}
    assert expected == values


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_steps_read_only_what_steps_write(path: Path) -> None:
    """An output that no step writes would be empty, and a condition on it never true."""
    written = {
        "kept": {field.name for field in fields(CacheOutputs)},
        "gate": {field.name for each in (ActionOutputs, InternalOutputs) for field in fields(each)},
        "python": {"python_path"},
        "setup": {field.name for field in fields(SetupOutputs)},
        "packages": {"cache_hit"},
        "install": {field.name for field in fields(InstallOutputs)},
        "restore": {"cache_hit"},
        "results": {"cache_matched_key"},
        "propose": {field.name for field in fields(Outcome)},
    }
    read = re.findall(r"steps\.(\w+)\.outputs\.([\w-]+)", path.read_text(encoding="utf-8"))

    assert [] == [(step, name) for step, name in read if name.replace("-", "_") not in written[step]]


@pytest.mark.parametrize(
    "step",
    [
        step
        for path in ACTIONS
        for step in yaml.safe_load(path.read_text(encoding="utf-8"))["runs"]["steps"]
        if "run" in step
    ],
    ids=lambda step: step["name"],
)
def test_no_script_is_filled_in(step: dict[str, Any]) -> None:
    """Scripts receive values only through the environment, and end at the first error."""
    assert "${{" not in step["run"]
    assert step["run"].startswith("set -euo pipefail\n")
    assert step["shell"] == "bash --noprofile --norc -p -e -o pipefail {0}"


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_scripts_do_not_obey_variables_for_shells_and_loaders(path: Path) -> None:
    """`-p` makes bash ignore functions and options from the environment; `-I` does the same for Python."""
    steps = [step for step in yaml.safe_load(path.read_text(encoding="utf-8"))["runs"]["steps"] if "run" in step]

    expected = dict.fromkeys(("BASH_ENV", "LD_PRELOAD", "LD_AUDIT"), "")
    assert [expected] * len(steps) == [{name: step["env"].get(name) for name in expected} for step in steps]
    programs = [line for step in steps for line in step["run"].splitlines() if "ython" in line and " -m " in line]
    assert all(" -I -m " in line for line in programs)


def test_steps_after_the_gate_do_not_decide_the_verdict() -> None:
    """They run after a failure, only for outputs of the gate, and cannot fail the job."""
    names = [step.get("id") for step in ACTION["runs"]["steps"]]
    later = ACTION["runs"]["steps"][names.index("gate") + 1 :]

    assert later
    assert [True] * len(later) == [step["if"].startswith("${{ !cancelled() && steps.") for step in later]
    assert ["Warn that the upload failed"] == [step["name"] for step in later if not step.get("continue-on-error")]
    cleared = dict.fromkeys(("NODE_OPTIONS", "LD_PRELOAD", "LD_AUDIT"), "")
    actions = [step for step in later if "uses" in step]
    assert [cleared] * len(actions) == [step["env"] for step in actions]


@pytest.mark.parametrize("path", [*ACTIONS, *WORKFLOWS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_third_party_actions_are_pinned(path: Path) -> None:
    """Third-party actions are pinned to a commit, with the release in a comment."""
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))

    foreign = [name for name in used if not name.startswith(OURS)]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+(/[\w-]+)?@[0-9a-f]{40} # v\d+\.\d+\.\d+", name) for name in foreign)


def test_each_action_is_used_at_one_release() -> None:
    """Workflows, actions, generated workflows and pages agree on the release of each third-party action."""
    texts = [path.read_text(encoding="utf-8") for path in (*ACTIONS, *WORKFLOWS)]
    texts += [CHECKOUT_ACTION, SETUP_PYTHON_ACTION]
    used = {pin for text in texts for pin in re.findall(r"([\w-]+/[\w-]+)(?:/[\w-]+)?@([0-9a-f]{40}) # (\S+)", text)}
    releases = {action: release for action, _, release in used}
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    majors = set(re.findall(r"uses: (actions/[\w-]+)@(v\d+)$", pages, re.MULTILINE))

    assert len(releases) == len(used), used
    assert majors
    assert {(action, releases[action].partition(".")[0]) for action, _ in majors} == majors


def test_dependabot_updates_all_pins() -> None:
    """Dependabot knows the folders of all actions, workflows and files with pinned packages."""
    config = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))
    known = {update["package-ecosystem"]: set(update["directories"]) for update in config["updates"]}
    pinning = [*ROOT.glob("requirements*.txt"), *ROOT.glob("*/requirements*.txt"), ROOT / "pyproject.toml"]
    folders = {"/" + path.parent.relative_to(ROOT).as_posix().removeprefix(".") for path in ACTIONS}

    assert folders == known["github-actions"]
    assert {f"/{path.parent.relative_to(ROOT)}".removesuffix(".") for path in pinning} == known["pip"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_workflows_use_only_inputs_and_outputs_that_exist(path: Path) -> None:
    """GitHub only warns about an unknown input and reads an unknown output as empty, so both would go unnoticed."""
    steps = [step for step in steps_of(path) if step.get("uses", "").startswith(OURS)]
    wrong = {(step["uses"], name) for step in steps for name in step.get("with", {}) if name not in inputs_of(step)}
    mine = {step["id"] for step in steps if "id" in step}
    read = re.findall(r"steps\.(\w+)\.outputs\.([\w-]+)", path.read_text(encoding="utf-8"))

    assert set() == wrong
    assert {name for step, name in read if step in mine} <= set(ACTION["outputs"])


def inputs_of(step: dict[str, Any]) -> set[str]:
    """Return the inputs of the onnxgate action that a step uses."""
    used = re.match(r"onnxgate/onnxgate/([\w-]+)@", step["uses"])
    action = ROOT / used[1] if used else ROOT
    return set(yaml.safe_load((action / "action.yml").read_text(encoding="utf-8"))["inputs"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_our_own_release_is_named(path: Path) -> None:
    """Reusable and example workflows use the current release."""
    used = re.findall(r"uses: onnxgate/onnxgate\S*@(\S+)", path.read_text(encoding="utf-8"))

    assert {f"v{__version__}"} >= set(used)


def test_job_that_proposes_upgrades_runs_no_code() -> None:
    """The job with write permissions has neither a checkout nor a command; the other job has read access only."""
    jobs = yaml.safe_load((ROOT / "examples/onnxgate-upgrade.yml").read_text(encoding="utf-8"))["jobs"]
    used = [step.get("uses", "").partition("@")[0] for step in jobs["propose"]["steps"]]

    assert {"contents": "read"} == jobs["preview"]["permissions"]
    assert {"contents": "write", "pull-requests": "write"} == jobs["propose"]["permissions"]
    assert ["actions/download-artifact", "onnxgate/onnxgate/pull-request"] == used


def test_reusable_workflow_uses_the_action_of_its_own_commit() -> None:
    """A caller that pins a commit of the reusable workflow also pins the action that its jobs use."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/onnxgate-matrix.yml").read_text(encoding="utf-8"))["jobs"]
    used = [(job["steps"][at - 1], step) for job in jobs.values() for at, step in enumerate(job["steps"])]
    ours = [(before, step) for before, step in used if step.get("uses", "").startswith(OURS)]
    own = {"repository": "${{ job.workflow_repository }}", "ref": "${{ job.workflow_sha }}"}

    assert ["./.onnxgate-action"] * len(jobs) == [step["uses"] for _, step in ours]
    assert all(own.items() <= before["with"].items() for before, _ in ours)
    assert all(before.get("if") == step.get("if") for before, step in ours)
    assert {".onnxgate-action"} == {before["with"]["path"] for before, _ in ours}


def test_the_job_of_the_verdict_has_the_permissions_of_the_caller() -> None:
    """`permissions` of the file would apply to all jobs without their own, and the comment would be refused."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/onnxgate-matrix.yml").read_text(encoding="utf-8"))
    permissions = {name: job.get("permissions") for name, job in workflow["jobs"].items()}

    assert "permissions" not in workflow
    assert {"plan": {"contents": "read"}, "shard": {"contents": "read"}, "merge": None} == permissions


def test_reusable_workflow_declares_its_inputs() -> None:
    """The reusable workflow declares all inputs that its caller sets, and uses each of them."""
    text = (ROOT / ".github/workflows/onnxgate-matrix.yml").read_text(encoding="utf-8")
    taken = set(yaml.safe_load(text)[True]["workflow_call"]["inputs"])  # YAML 1.1 reads `on` as true
    calling = yaml.safe_load((ROOT / "examples/onnxgate-matrix.yml").read_text(encoding="utf-8"))

    assert set(calling["jobs"]["gate"]["with"]) <= taken
    assert taken == set(re.findall(r"\$\{\{[^}]*\binputs\.([\w-]+)", text))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_table_of_inputs_names_all_of_them(path: Path) -> None:
    """A table of the action's inputs or outputs in the docs is complete and has the current defaults."""
    text = path.read_text(encoding="utf-8")
    for kind in ("input", "output"):
        table = re.search(rf"^\| {kind} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", text, re.MULTILINE)
        cells = [row.split("|")[1] for row in table[1].splitlines()] if table else []
        named = [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)] or list(ACTION[f"{kind}s"])

        assert sorted(ACTION[f"{kind}s"]) == sorted(named)


@pytest.mark.parametrize(
    ("hook", "name", "expected"),
    [
        ("onnxgate", "models/a.onnx", True),
        ("onnxgate", "a.onnx.data", True),
        ("onnxgate", "a.onnx_data", True),
        ("onnxgate", "weights.bin", True),
        ("onnxgate", "a.onnx.md", False),
        ("onnxgate", "services/a/onnxgate.toml", True),
        ("onnxgate", "onnxgate.lock", True),
        ("onnxgate", "pyproject.toml", True),
        ("onnxgate", "uv.lock", False),
    ],
)
def test_the_first_hook_is_for_models_and_what_decides_about_them(hook: str, name: str, expected: bool) -> None:
    """The first hook starts only for models, their data, configs and locks."""
    actual = re.search(HOOKS[hook]["files"], name) is not None

    assert expected == actual


def test_hooks_install_the_pins_of_the_action() -> None:
    """The hooks use the same versions as the action, without packages that they do not import."""
    unused = {"uv", "pygments", "markdown-it-py", "mdurl"}  # rich imports the last three for output that is not used
    action, hooks = pins("requirements.txt"), pins("requirements-hooks.txt")
    built_with = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    arguments = ["--no-deps", "--no-compile", "--requirement=requirements-hooks.txt"]
    uv = [pin for pin in action if pin.startswith("uv==")]

    assert {pin for pin in action if pin.partition("==")[0] not in unused} == hooks
    assert {pin.replace("_", "-") for pin in built_with} <= pins(".github/requirements-build.txt")
    assert {hook: about["additional_dependencies"] for hook, about in HOOKS.items()} == {
        "onnxgate": arguments,
        "onnxgate-lock": arguments,
        "onnxgate-run": [*arguments, *uv],
    }


def pins(name: str) -> set[str]:
    """Return the requirements in a file, without hashes."""
    return set(re.findall(r"^[\w.-]+==[^\\\n]*[^\\\s]", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("hook", ["onnxgate-lock", "onnxgate-run"])
def test_the_other_hooks_always_run(hook: str) -> None:
    """A deleted model is not passed to a hook, and any file may affect an export, so these hooks always run."""
    assert (HOOKS[hook]["always_run"], HOOKS[hook]["pass_filenames"], "files" in HOOKS[hook]) == (True, False, False)
