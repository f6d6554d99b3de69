"""A repository with its own export script, before onnxgate is added."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

SCRIPT = """import argparse

import torch

SEED = 7


class Head(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(8, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.mix(features), dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="models/head.onnx")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.onnx.export(
        Head().eval(),
        (torch.zeros(2, 8),),
        options.out,
        input_names=["features"],
        output_names=["choices"],
        dynamic_axes={"features": {0: "batch"}, "choices": {0: "batch"}},
        opset_version=18,
        dynamo=False,
    )


if __name__ == "__main__":
    main()
"""
MODEL = "models/head.onnx"


def make_repository(folder: Path, python: Path) -> None:
    """Commit the script, its requirements, and the exported model."""
    (folder / "models").mkdir(parents=True)
    (folder / "export.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "requirements.txt").write_text("torch==2.13.0\nonnxscript>=0.6\n", encoding="utf-8")
    subprocess.run([python, "export.py"], cwd=folder, check=True, capture_output=True)
    commit(folder)


def join(repository: Repository) -> None:
    """Add onnxgate as a user does: `init`, uncomment the command, `lock`, commit."""
    repository.run("init", "-y", "--runtime", "onnxruntime==1.31.1")
    repository.edit("onnxgate.toml", "# command = ", "command = ")
    repository.run("lock")
    commit(repository.folder)
