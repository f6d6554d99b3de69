"""The scheduled workflow for upgrades in a real Actions engine, with a local server for the API.

The releases are real: onnxruntime 1.18.1 has no kernel for a node that 1.17.3 runs, and supports a newer opset.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from onnxgate import __version__
from tests.conftest import need
from tests.harness.github.act import TOKEN, Actor, Workflow, stubs
from tests.harness.github.comment_server import running
from tests.harness.github.repository_server import NAME, RepositoryServer
from tests.harness.repositories.checkout import ROOT, git

pytestmark = [pytest.mark.surface, pytest.mark.index]

CONFIG = '[targets.server]\nruntime = "onnxruntime>=1.17,<{}"\nselect = "newest"\n'
MODELS = {
    "encoder": '<ir_version: 9, opset_import: ["" : 19]> g (float[2, 4] x, int64[1] s) => (float[N] y)'
    " { q = Cast<to = 17>(x) r = Reshape(q, s) y = Cast<to = 1>(r) }",
    "newer": '<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y) { y = Abs(x) }',
    "stable": '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Neg(x) }',
}
WORKFLOW = ROOT / "examples/onnxgate-upgrade.yml"


class Repository:
    """A repository with the workflow, three models, and a lock with an old release."""

    def __init__(self, folder: Path, program: Path, quick: Path, cache: Path, server: RepositoryServer) -> None:
        self.folder = server.folder
        self.scratch = folder
        self.program = program
        self.cache = {"ONNXGATE_CACHE_DIR": str(cache)}
        self.server = server
        own = {f"onnxgate/onnxgate{name}@v{__version__}": quick for name in ("", "/pull-request")}
        texts = [path.read_text(encoding="utf-8") for path in (ROOT / "action.yml", WORKFLOW)]
        self.actor = Actor(need("act"), self.folder, folder, {**own, **stubs(folder / "stubs", texts)})

    def onnxgate(self, *arguments: str, status: int = 0) -> str:
        """Run onnxgate, and return its output."""
        command = [self.program, *arguments]
        environment = {**os.environ, **self.cache}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def support(self, limit: str) -> None:
        """Support releases below the limit, which stand for the available ones, and keep the lock on 1.17.3."""
        (self.folder / "onnxgate.toml").write_text(CONFIG.format(limit), encoding="utf-8")
        self.onnxgate("lock")
        self.onnxgate("lock", "--upgrade", "onnxruntime==1.17.3")
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", f"--message=Support releases below {limit}")

    def run_schedule(self) -> Workflow:
        """Run the workflow of the example, as the schedule does."""
        shutil.rmtree(self.scratch / "artifacts", ignore_errors=True)
        self.server.asked.clear()
        environment = {"GITHUB_API_URL": self.server.address, "GITHUB_REPOSITORY": NAME}
        ran = self.actor.start(WORKFLOW, "schedule", None, STUB_FOLDER=str(self.scratch), **environment, **self.cache)
        assert ran.status == 0, ran.log()
        return ran


@pytest.fixture
def repository(tmp_path: Path, installed: Path, quick: Path, cache: Path) -> Iterator[Repository]:
    """Create the repository, for which onnxruntime 1.18.1 is available."""
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in MODELS.items():
        onnx.save(onnx.parser.parse_model(text), folder / "models" / f"{name}.onnx")
    git(folder, "add", "--all")
    with running(RepositoryServer(folder=folder)) as server:
        created = Repository(tmp_path, installed, quick, cache, server)
        created.support("1.19")
        yield created


def result_of(ran: Workflow) -> str:
    """Return the result of the second job."""
    step: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["propose"]["steps"][-1]
    outputs = [entry for entry in ran.job("Open or update").entries if entry.get("command") == "set-output"]
    assert "pull-request@" in step["uses"]
    return next(str(entry["arg"]) for entry in outputs if entry["name"] == "result")


def test_upgrade_from_proposal_to_merge(repository: Repository) -> None:
    """The pull request is opened, left alone, updated and merged; it shows the repaired and the broken model."""
    server = repository.server
    ran = repository.run_schedule()

    assert result_of(ran) == "created"
    [pull] = server.pulls
    assert pull["title"] == "Upgrade onnxruntime to 1.18.1"
    assert (
        "| `models/encoder.onnx` | **FAIL** | ❌ breaks |\n| `models/newer.onnx` | ok | ✅ repaired |" in pull["body"]
    )
    assert "### ❌ 1 new finding" in pull["body"]
    assert "### ✅ 2 resolved findings" in pull["body"]
    assert git(repository.folder, "diff", "--name-only", "main", "onnxgate/upgrade") == "onnxgate.lock"
    assert server.tokens == {f"Bearer {TOKEN}"}
    assert "### ❌ 1 new finding" in ran.job("Preview").summary()

    tip = server.tip("onnxgate/upgrade")

    assert result_of(repository.run_schedule()) == "unchanged"
    assert (server.changes, server.tip("onnxgate/upgrade")) == ([], tip)

    repository.support("1.20")

    assert result_of(repository.run_schedule()) == "updated"
    assert [(pull["title"], pull["state"]) for pull in server.pulls] == [("Upgrade onnxruntime to 1.19.2", "open")]
    assert "added onnxruntime 1.19.2" in server.pulls[0]["body"]

    server.merge(1)

    assert result_of(repository.run_schedule()) == "none"
    assert (server.changes, len(server.pulls)) == ([], 1)
    assert "missing-kernel" in repository.onnxgate("check", status=1)
