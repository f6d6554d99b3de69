"""The action in a real Actions engine: pull requests, forks, a matrix of jobs, and corrupted caches.
The action's install step is replaced by the existing installation; `test_act` runs the real one.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxgate import __version__
from tests.conftest import need
from tests.gate.test_result_cache import read_record, write_record
from tests.harness.github.act import TOKEN, Actor, Workflow, stubs
from tests.harness.github.action_consumer import Consumer, consumer
from tests.harness.github.comment_server import Server, serving
from tests.harness.repositories.checkout import ROOT, git

pytestmark = [pytest.mark.surface, pytest.mark.index]

OURS = f"onnxgate/onnxgate@v{__version__}"
CHECKOUT = {"uses": "actions/checkout@v6"}
STATIC = "file,lock,support"


@pytest.fixture(scope="module")
def origin(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """Create a repository that uses the action."""
    return consumer(tmp_path_factory.mktemp("origin") / "repository", installed)


@pytest.fixture
def repository(origin: Consumer, tmp_path: Path) -> Consumer:
    """Return a copy of that repository."""
    return replace(origin, folder=shutil.copytree(origin.folder, tmp_path / "repository"))


class Scene:
    """Runs workflows of the repository for an event."""

    def __init__(self, folder: Path, repository: Consumer, quick: Path) -> None:
        self.folder = folder
        texts = [path.read_text(encoding="utf-8") for path in (ROOT / "action.yml", *_workflows())]
        actions = {OURS: quick, **stubs(folder / "stubs", texts)}
        actions[f"onnxgate/onnxgate/comment@v{__version__}"] = quick
        self.actor = Actor(need("act"), repository.folder, folder, actions)

    def run(self, steps: list[dict[str, Any]], event: str, payload: object, **environment: str) -> Workflow:
        """Run a workflow with one job of these steps."""
        job = {"runs-on": "ubuntu-24.04", "steps": [CHECKOUT, *steps]}
        return self.workflow({"name": "CI", "on": event, "jobs": {"gate": job}}, event, payload, **environment)

    def workflow(self, workflow: dict[str, Any], event: str, payload: object, **environment: str) -> Workflow:
        """Run a workflow."""
        path = self.folder / "workflow.yml"
        path.write_text(yaml.safe_dump(workflow), encoding="utf-8")
        return self.actor.start(path, event, payload, STUB_FOLDER=str(self.folder), **environment)


def _workflows() -> list[Path]:
    return [ROOT / ".github/workflows/onnxgate-matrix.yml", *sorted((ROOT / "examples").glob("*.yml"))]


def example(name: str) -> dict[str, Any]:
    """Load an example workflow."""
    loaded = yaml.safe_load((ROOT / "examples" / name).read_text(encoding="utf-8"))
    return {"on": loaded.pop(True), **loaded}  # YAML 1.1 reads `on` as true


@pytest.fixture
def scene(tmp_path: Path, repository: Consumer, quick: Path) -> Scene:
    """Return the engine on that repository."""
    return Scene(tmp_path, repository, quick)


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a local server for the comments API."""
    with serving() as server:
        yield server


def use(**inputs: str) -> dict[str, Any]:
    """Return a step that uses the action."""
    return {
        "uses": OURS,
        "id": "gate",
        "with": {"stages": STATIC, **{n.replace("_", "-"): v for n, v in inputs.items()}},
    }


def pull_request(repository: Consumer, head: str = "team/models") -> dict[str, Any]:
    """Check out the pull request and return its event."""
    event = repository.merge()
    event["pull_request"]["head"]["repo"] = {"full_name": head}
    event["pull_request"]["base"]["repo"] = {"full_name": "team/models"}
    return event


def environment(server: Server) -> dict[str, str]:
    """Return the variables that GitHub sets for a job."""
    return {"GITHUB_API_URL": server.address, "GITHUB_REPOSITORY": "team/models"}


def change(repository: Consumer, **changed: str) -> None:
    """Change the first model on the branch `change`, and lock it."""
    git(repository.folder, "switch", "--quiet", "--create", "change")
    repository.model("models/a.onnx", **changed)
    repository.lock("models/a.onnx", "--offline")
    repository.commit("change")


def test_a_breaking_pull_request_is_closed_and_commented(scene: Scene, repository: Consumer, server: Server) -> None:
    """The change is locked; only the comparison with the base reveals it, in annotation, comment, SARIF and verdict."""
    change(repository, input="renamed")
    step = use(comment="always", sarif="true")
    ran = scene.run([step], "pull_request", pull_request(repository), **environment(server))

    outputs = ran.outputs("gate")
    assert (ran.outcome("gate"), outputs["verdict"], outputs["exit-code"]) == ("failure", "fail", "1"), ran.log()
    assert "input-renamed" in {said.properties["title"] for said in ran.annotations() if said.name == "error"}
    [comment] = server.comments
    assert "`renamed`" in comment["body"]
    assert {f"Bearer {TOKEN}"} == server.tokens
    assert "input-renamed" in (scene.folder / "onnxgate.sarif").read_text(encoding="utf-8")


def test_a_fork_with_a_read_only_token_gets_its_verdict(scene: Scene, repository: Consumer, server: Server) -> None:
    """Missing write permissions cause warnings only; a compatible change passes."""
    change(repository, operator="Sigmoid")
    server.refuse = lambda method, _: (403, {"message": "Resource not accessible"}) if method == "POST" else None
    step = use(comment="always", sarif="true", token="read-only")
    event = pull_request(repository, "somebody/models")
    ran = scene.run([step], "pull_request", event, **environment(server), STUB_READ_ONLY="1")

    warnings = [said.data for said in ran.annotations() if said.name == "warning"]
    assert (ran.status, ran.outcome("gate"), ran.outputs("gate")["verdict"]) == (0, "success", "pass"), ran.log()
    assert any("pull requests from forks have a read-only token" in warning for warning in warnings)
    assert any("the upload to code scanning failed" in warning for warning in warnings)
    assert [] == server.comments


def test_the_second_workflow_comments_for_a_fork(scene: Scene, repository: Consumer, server: Server) -> None:
    """The first example workflow uploads the report, and the second one comments on the pull request of that commit."""
    change(repository, input="renamed")
    event = pull_request(repository, "somebody/models")
    head = event["pull_request"]["head"]
    first = example("onnxgate.yml")
    first["jobs"]["gate"]["steps"][1]["with"] = {"stages": STATIC}
    ran = scene.workflow(first, "pull_request", event)
    server.pulls.append({**event["pull_request"], "head": {**head, "label": "somebody:change"}})
    finished = {"event": "pull_request", "head_sha": head["sha"], "head_branch": "change", "conclusion": "failure"}
    later = {"workflow_run": {**finished, "id": 5, "head_repository": head["repo"]}}
    actual = scene.workflow(
        example("onnxgate-comment.yml"), "workflow_run", later, **environment(server), GITHUB_TOKEN="secret"
    )

    assert ("fail", 0) == (ran.outputs("gate").get("verdict"), actual.status), ran.log() + actual.log()
    [comment] = server.comments
    assert "input-renamed" in comment["body"]
    assert "(conclusion: `failure`)" in comment["body"]


KILLER = """
import os
import signal

os.kill(os.getppid(), signal.SIGKILL)  # whoever started this process: the gate
"""


@pytest.mark.parametrize("killed", [False, True])
def test_a_matrix_has_one_verdict(scene: Scene, repository: Consumer, quick: Path, killed: bool) -> None:
    """The merged shards pass and save their costs for the next plan; a killed shard prevents a pass."""
    workflows = repository.folder / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "onnxgate-matrix.yml").write_text(reusable_workflow(quick), encoding="utf-8")
    repository.commit("workflows")
    repository.model("models/b.onnx", operator="Sigmoid")
    repository.lock("models/b.onnx", "--offline")
    repository.commit("two models that are not the same")
    if killed:
        (repository.folder / "killer.py").write_text(KILLER, encoding="utf-8")
        with (repository.folder / "onnxgate.toml").open("a", encoding="utf-8") as config:
            config.write('\n[[model]]\npath = "models/b.onnx"\ninputs = "killer.py:batches"\n')
        repository.commit("what kills the gate")
    called = {"uses": "./.github/workflows/onnxgate-matrix.yml", "with": {"shards": 2}}
    ran = scene.workflow({"name": "CI", "on": "push", "jobs": {"gate": called}}, "push", None)

    merged = ran.job("Merge").outputs("merge")
    expected = ("undecided", "3", 1) if killed else ("pass", "0", 0)
    assert expected == (merged.get("verdict"), merged.get("exit-code"), ran.status), ran.log()
    assert 2 - killed == len(list((scene.folder / "artifacts").glob("*-shard-*/*.json")))
    saved = list((scene.folder / "caches").glob("onnxgate-costs-*/costs/*"))
    assert 2 - killed == len(list((scene.folder / "artifacts").glob("*/costs/*")))
    assert (0 if killed else 2) == len(saved)
    if not killed:
        step = use(command="plan", args="--shards 2", stages="")
        planned = scene.run([step], "push", None).outputs("gate")["matrix"]
        assert ["1/2", "2/2"] == [each["shard"] for each in json.loads(planned)["include"]]
    if killed:
        actual = [annotation.data for annotation in ran.job("Merge").annotations() if annotation.name == "error"]
        assert any("models/b.onnx" in each or "shard" in each for each in actual), actual


def test_a_matrix_requires_its_own_commit(scene: Scene, repository: Consumer) -> None:
    """Without the commit of the workflow, no job runs, since the action would be read from the checked repository."""
    workflows = repository.folder / ".github" / "workflows"
    workflows.mkdir(parents=True)
    shutil.copy(ROOT / ".github/workflows/onnxgate-matrix.yml", workflows)
    repository.commit("workflows")
    called = {"uses": "./.github/workflows/onnxgate-matrix.yml"}
    ran = scene.workflow({"name": "CI", "on": "push", "jobs": {"gate": called}}, "push", None)

    [error] = [said.data for said in ran.job("Plan").annotations() if said.name == "error"]
    assert (1, {}) == (ran.status, ran.job("Merge").outputs("merge"))
    assert error.startswith("this server does not provide `job.workflow_sha`")


def reusable_workflow(action: Path) -> str:
    """Return the reusable workflow with the values of its commit, which `act` does not provide."""
    text = (ROOT / ".github/workflows/onnxgate-matrix.yml").read_text(encoding="utf-8")
    values = {"workflow_repository": str(action), "workflow_sha": git(action, "rev-parse", "HEAD").strip()}
    for name, value in values.items():
        text = text.replace(f"${{{{ job.{name} }}}}", value)
    return text


NO_INDEX = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}


def change_outcome(file: Path) -> None:
    """Change the last byte of the file."""
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def change_output(entry: Path) -> None:
    """Replace a number in the output."""
    content = (entry / "0" / "0.npy").read_bytes()
    (entry / "0" / "0.npy").write_bytes(content[:-4] + b"\x00\x00\xc0\x7f")


def reshape(entry: Path) -> None:
    """Declare a shape that is larger than the data, and update the hash in the record."""
    before = (entry / "0" / "0.npy").read_bytes()
    after = before.replace(b", 4), }", b", 9), }")
    record = read_record(entry)
    forged = record.replace(*(hashlib.sha256(content).hexdigest().encode() for content in (before, after)))
    assert before != after
    assert record != forged
    (entry / "0" / "0.npy").write_bytes(after)
    write_record(entry, forged)


def link(entry: Path, elsewhere: Path) -> None:
    """Replace the file by a link to the same content."""
    (entry / "0" / "0.npy").rename(elsewhere / "0.npy")
    (entry / "0" / "0.npy").symlink_to(elsewhere / "0.npy")


def reused_results(ran: Workflow) -> list[str]:
    """Return the number of reused results in the job summary."""
    return re.findall(r"(\d+) results? reused from cache", ran.summary())


def test_a_cache_is_used_and_never_trusted(scene: Scene, repository: Consumer, tmp_path: Path) -> None:
    """The second run makes no requests and reuses results; corrupted wheels and results are rejected in the third."""
    repository.model("models/b.onnx", operator="Sigmoid")
    repository.lock("models/b.onnx", "--offline")
    repository.commit("two models that are not the same")
    whole = use(stages="file,lock,support,runtime")
    first = scene.run([whole], "push", None)
    assert 2 == len(list((tmp_path / "caches").iterdir())), first.log()
    wheels, results = sorted((tmp_path / "caches").iterdir(), key=lambda path: "-results-" in path.name)
    second = scene.run([{**whole, "env": {**NO_INDEX, "UV_CACHE_DIR": str(tmp_path / "uv")}}], "push", None)
    wheel = next(wheels.glob("wheels/*/onnxruntime-*.whl"))
    content = wheel.read_bytes()
    wheel.write_bytes(content[:-100] + bytes(100))
    planted = wheels / "environments" / "onnxruntime" / "ready.json"
    planted.parent.mkdir(parents=True)
    planted.write_text("{}")
    for outcome in results.glob("results/*/outcome.msgpack"):
        change_outcome(outcome)
    changed, reshaped, linked, _ = sorted(entry.parent for entry in results.glob("results/*/entry.json"))
    change_output(changed)
    reshape(reshaped)
    link(linked, tmp_path)
    third = scene.run([whole], "push", None)

    verdicts = [ran.outputs("gate").get("verdict") for ran in (first, second, third)]
    assert ["pass", "pass", "pass"] == verdicts, first.log() + second.log() + third.log()
    assert [[], ["4"], ["1"]] == [reused_results(ran) for ran in (first, second, third)], third.log()
    assert "cache: saved" not in second.log() + third.log()
    assert [] == [said for said in second.annotations() if said.name != "notice"]
    warnings = [said.data for said in third.annotations() if said.name == "warning"]
    assert [True, True] == [name in said for name, said in zip((wheel.name, linked.name), warnings, strict=True)]
    assert "will be downloaded again" in third.log()
