"""A corpus as a project: a git repository with `onnxgate.toml` and `onnxgate.lock`."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.corpora import Corpus

PINS = Path(__file__).with_name("pins.lock")
"""A lock for `CONFIG` that pins 14 releases of ONNX Runtime, so that no package index is needed."""
CONFIG = """\
models = ["models/**/*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.32"
"""
_DONE = Path(".git", "bench-complete")
_WHEN = "2026-01-01T00:00:00Z"
_GIT = {
    **{f"GIT_{who}_{what}": "bench" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    **{f"GIT_{who}_DATE": _WHEN for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def make(corpus: Corpus, folder: Path, onnxgate: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write the corpus to `folder`, lock it with the command `onnxgate`, and commit it, unless that is already done."""
    if is_complete(folder):
        return
    (folder / "models").mkdir(parents=True, exist_ok=True)
    corpus.write(folder / "models")
    (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "onnxgate.lock").write_bytes(PINS.read_bytes())
    with tempfile.TemporaryDirectory() as cache:
        everywhere = {**os.environ, **_GIT, **environment, "ONNXGATE_CACHE_DIR": cache}
        for command in (
            ("git", "init", "--quiet", "--initial-branch=main"),
            ("git", "config", "core.compression", "1"),
            (*onnxgate, "lock", "--offline", "--quiet"),
            ("git", "add", "."),
            ("git", "commit", "--quiet", "--message=A corpus"),
        ):
            subprocess.run(
                command, cwd=folder, check=True, env=everywhere, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
    (folder / _DONE).touch()


def is_complete(folder: Path) -> bool:
    """Return whether the folder contains a complete corpus."""
    return (folder / _DONE).is_file()
