"""Small repositories that deploy ONNX Runtime in different ways."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import onnx
from onnx import parser

MODEL = '<ir_version: {ir}, opset_import: ["" : {opset}]> g (float[N, 4] x) => (float[N, 4] y) {{ y = Relu(x) }}'
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"
LFS_ATTRIBUTES = "*.onnx filter=lfs diff=lfs merge=lfs -text\n"
UV_LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "onnxruntime" }]

[[package]]
name = "onnxruntime"
version = "1.20.1"
source = { registry = "https://example.org/simple" }
"""
PYPROJECT = '[project]\nname = "app"\nversion = "0.1.0"\ndependencies = ["onnxruntime>=1.18"]\n'
POETRY_LOCK = """[[package]]
name = "numpy"
version = "1.26.4"
description = ""
optional = false
python-versions = ">=3.9"
files = []

[[package]]
name = "onnxruntime"
version = "1.19.2"
description = ""
optional = false
python-versions = "*"
files = []

[metadata]
lock-version = "2.0"
python-versions = "^3.11"
"""
POETRY_PROJECT = """[tool.poetry]
name = "app"
version = "0.1.0"

[tool.poetry.dependencies]
python = "^3.11"
onnxruntime = "^1.17"
"""
DOCKERFILE = """FROM python:3.11-slim
ARG ORT_VERSION=1.18.1
RUN apt-get update \\
    && pip install --no-cache-dir numpy \\
       "onnxruntime-gpu==${ORT_VERSION}"
COPY . /app
"""
PACKAGE_JSON = '{\n  "name": "web",\n  "dependencies": {\n    "onnxruntime-web": "1.20.1"\n  }\n}\n'
CONDA = """name: app
dependencies:
  - python=3.11
  - conda-forge::onnxruntime=1.18.1
  - pip
  - pip:
      - onnxruntime==1.19.2
"""
NPM = '{"dependencies": {"onnxruntime-web": "1.20.1", "onnxruntime-node": "1.19.2"}}\n'
REPOSITORIES: dict[str, dict[str, str]] = {
    "requirements": {"requirements.txt": "numpy<2\nonnxruntime==1.18.1  # production\n"},
    "uv": {"pyproject.toml": PYPROJECT, "uv.lock": UV_LOCK},
    "poetry": {"pyproject.toml": POETRY_PROJECT, "poetry.lock": POETRY_LOCK},
    "docker": {"Dockerfile": DOCKERFILE},
    "node": {"package.json": PACKAGE_JSON},
    "nothing": {},
    "conda": {"environment.yml": CONDA},
    "npm": {"package.json": NPM},
    "monorepo": {
        "services/api/requirements.txt": "onnxruntime==1.18.1\n",
        "services/batch/requirements.txt": "onnxruntime>=1.22,<1.25\n",
        "edge/onnxgate.toml": '[targets.edge]\nruntime = "onnxruntime==1.16.3"\n',
    },
    "lfs": {".gitattributes": LFS_ATTRIBUTES, "requirements.txt": "onnxruntime==1.18.1\n"},
}
"""Files of each repository, without its models."""


def save_model(path: Path, ir: int = 9, opset: int = 18) -> None:
    """Write a small valid model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(parser.parse_model(MODEL.format(ir=ir, opset=opset)), path)


def git(folder: Path, *arguments: str) -> None:
    """Run git without the settings of the user."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=environment)


def make_repository(folder: Path, name: str) -> Path:
    """Create one of the repositories in a folder; all files are tracked."""
    folder.mkdir(parents=True)
    save_model(folder / "models/net.onnx")
    if name == "monorepo":
        save_model(folder / "edge/small.onnx")
    elif name == "lfs":
        (folder / "models/net.onnx").write_text(POINTER, encoding="utf-8")
    for path, text in REPOSITORIES[name].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "-c", "filter.lfs.clean=cat", "-c", "filter.lfs.required=false", "add", ".")
    return folder
