"""Provoke errors of uv: missing wheels, conflicts, hashes, an unreachable index."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tools.harvest_texts.environments import environment, said
from tools.harvest_texts.pip import SETUP, WRONG, anonymous

CASES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "no-wheel": ("uv-no-solution", ("onnxruntime==1.5.2",)),
    "no-such-package": ("uv-no-solution", ("onnxgate-no-such-package",)),
    "no-release": ("uv-no-solution", ("onnxruntime==99.0",)),
    "conflict": ("uv-no-solution", ("onnx==1.16.2", "protobuf==3.19.6")),
    "hash-mismatch": ("uv-hash-mismatch", ("--require-hashes", "-r", "hashed.txt")),
    "hash-missing": ("uv-hash-missing", ("--require-hashes", "-r", "unhashed.txt")),
    "unreachable": ("uv-unreachable", ("--index-url", "http://127.0.0.1:9/simple", "packaging")),
    "wrong-platform": ("uv-wheel-unsupported", ("./onnxruntime-1.20.1-cp36-cp36m-win_amd64.whl",)),
    "build-failed": ("uv-build-failed", ("--no-build-isolation", "./broken")),
}


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case with one release of uv."""
    tool = environment(f"uv-{release}", "3.12", f"uv=={release}")
    python = environment("uv-target", "3.12", "setuptools==75.8.0")
    (folder / "hashed.txt").write_text(f"packaging==24.1 --hash={WRONG}\n")
    (folder / "unhashed.txt").write_text("packaging==24.1\n")
    (folder / "onnxruntime-1.20.1-cp36-cp36m-win_amd64.whl").write_bytes(b"")
    (folder / "broken").mkdir()
    (folder / "broken" / "setup.py").write_text(SETUP)
    index = {
        key: value for key, value in os.environ.items() if key in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "SSL_CERT_FILE")
    }
    actual = {}
    for case, (_, arguments) in CASES.items():
        command = [tool.with_name("uv"), "pip", "install", "--dry-run", "--no-config", "--python", python, *arguments]
        if case in ("hash-mismatch", "build-failed", "wrong-platform"):
            command.remove("--dry-run")
            command[3:3] = ["--target", "out"]
        text = said(command, folder, UV_HTTP_RETRIES="0", **index)
        if "×" in text or "error" in text:
            actual[case] = anonymous(text)
    return actual


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return {case: entry for case, (entry, _) in CASES.items()}
