"""GitHub's language service accepts the actions, workflows, examples, and YAML snippets in the docs."""

from __future__ import annotations

import json
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from tests.conftest import need
from tests.harness.repositories.checkout import ROOT
from tests.harness.yaml_blocks import read_yaml_blocks

pytestmark = pytest.mark.surface

HERE = Path(__file__).parent / "language"
FILES = [
    path
    for where in (
        "action.yml",
        "comment/action.yml",
        "pull-request/action.yml",
        ".github/workflows/*.yml",
        "examples/*.yml",
        "fixtures/projects/*/.github/workflows/*.yml",
    )
    for path in sorted(ROOT.glob(where))
]
JOB = "on: push\njobs:\n  job:\n    runs-on: ubuntu-24.04\n"

Validate = Callable[[dict[str, str]], dict[str, list[str]]]


@pytest.fixture(scope="module")
def validate(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Validate:
    """Return a function that runs the language service; skip the test if it cannot be installed."""
    node, npm, home = need("node"), need("npm"), shared_folder / "language"
    with FileLock(shared_folder / "language.lock"):
        if not home.exists():
            shutil.copytree(HERE, home)
            quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
            subprocess.run([npm, "ci", *quiet], cwd=home, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not (home / "node_modules" / "@actions").exists():
        pytest.skip("npm could not install @actions/languageservice")
    scratch = tmp_path_factory.mktemp("asked")

    def validate(texts: dict[str, str]) -> dict[str, list[str]]:
        (scratch / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        (scratch / "actions.json").write_text(json.dumps(metadata()), encoding="utf-8")
        command = [node, "check.mjs", scratch / "texts.json", scratch / "actions.json"]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)
        decoded: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
        return decoded

    return validate


def metadata() -> dict[str, dict[str, object]]:
    """Return the inputs of onnxgate's actions, and those of third-party actions in the pinned releases."""
    foreign = json.loads((HERE / "actions.json").read_text(encoding="utf-8"))
    known = {name: {name: {"description": ""} for name in inputs} for name, inputs in foreign.items()}
    for name in ("", "/comment", "/pull-request"):
        folder = ROOT / name.removeprefix("/")
        known[f"onnxgate/onnxgate{name}"] = yaml.safe_load((folder / "action.yml").read_text(encoding="utf-8"))[
            "inputs"
        ]
    return {name: {"name": name, "description": "", "inputs": inputs} for name, inputs in known.items()}


def test_actions_workflows_and_pages_are_githubs(validate: Validate) -> None:
    """No problems are reported in files and in the blocks of pages."""
    texts = {name_for_service(path): path.read_text(encoding="utf-8") for path in FILES}
    blocks = read_yaml_blocks("workflow", "job", "steps")
    actual = validate({**texts, **{f".github/workflows/{block.name}.yml": block.workflow for block in blocks}})

    assert {} == {name: problems for name, problems in actual.items() if problems}
    assert len(FILES) + len(blocks) == len(actual)


def name_for_service(path: Path) -> str:
    """Return a path from which the service derives the kind of the file."""
    name = path.relative_to(ROOT).as_posix()
    return f".github/workflows/{name.replace('/', '-')}" if name.startswith(("examples/", "fixtures/")) else name


def test_service_reports_mistakes(validate: Validate) -> None:
    """The service reports unknown inputs, outputs, keys and contexts."""
    steps = ["- uses: onnxgate/onnxgate@v0.1.0", "  with: {path: x}", "- run: echo ${{ steps.none.outputs.x }}"]
    wrong = textwrap.indent("\n".join(["steps:", *steps]), "    ")
    action = (ROOT / "action.yml").read_text(encoding="utf-8")
    actual = validate(
        {
            ".github/workflows/wrong.yml": JOB + wrong,
            "key/action.yml": action.replace("      shell: bash", "      shel: bash", 1),
            "context/action.yml": action.replace("inputs.token", "secrets.token"),
        }
    )

    assert ["key/action.yml", "context/action.yml"] == [name for name in actual if actual[name] and "action" in name]
    assert 2 == len(actual[".github/workflows/wrong.yml"])
