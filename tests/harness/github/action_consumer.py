"""A repository that uses the action, with small models, a lock, and a pull request checked out as on GitHub."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.repositories.checkout import git

CONFIG = """[targets.server]
runtime = "onnxruntime==1.18.1"
"""
MODEL = """<ir_version: 8, opset_import: ["": 17]>
main (float[N, 4] {input}) => (float[N, 4] y) {{ y = {operator}({input}) }}"""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A repository with two models and a lock."""

    folder: Path
    program: Path

    def model(self, name: str, *, input: str = "x", operator: str = "Relu") -> None:
        """Write a model."""
        import onnx

        (self.folder / name).parent.mkdir(exist_ok=True)
        onnx.save(onnx.parser.parse_model(MODEL.format(input=input, operator=operator)), self.folder / name)

    def lock(self, *arguments: str) -> None:
        """Run `onnxgate lock`."""
        command = [self.program, "lock", *arguments]
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(command, cwd=self.folder, env=environment, check=True, stdin=subprocess.DEVNULL)

    def commit(self, message: str) -> str:
        """Commit all files and return the new revision."""
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--allow-empty", f"--message={message}")
        return git(self.folder, "rev-parse", "HEAD")

    def merge(self) -> dict[str, Any]:
        """Check out the merge commit of the branch `change`, as GitHub does, and return the pull request event."""
        base = git(self.folder, "rev-parse", "main")
        git(self.folder, "switch", "--quiet", "--detach", "main")
        git(self.folder, "merge", "--quiet", "--no-ff", "--no-edit", "change")
        head = {"sha": git(self.folder, "rev-parse", "change"), "ref": "change"}
        return {"number": 7, "pull_request": {"number": 7, "head": head, "base": {"sha": base, "ref": "main"}}}


def consumer(folder: Path, program: Path) -> Consumer:
    """Create the repository, on `main`."""
    made = Consumer(folder, program)
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
    for name in ("models/a.onnx", "models/b.onnx"):
        made.model(name)
    git(folder, "add", "--all")
    made.lock()
    made.commit("two models")
    return made
