"""Provoke errors of pip: missing wheels, conflicts, hashes, an unreachable index."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from tools.harvest_texts.environments import environment, said

WRONG = "sha256:" + "0" * 64
CASES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "no-wheel": ("pip-no-distribution", ("onnxruntime==1.5.2",)),
    "no-such-package": ("pip-no-distribution", ("onnxgate-no-such-package",)),
    "no-release": ("pip-no-distribution", ("onnxruntime==99.0",)),
    "conflict": ("pip-conflict", ("onnx==1.16.2", "protobuf==3.19.6")),
    "hash-mismatch": ("pip-hash-mismatch", ("--require-hashes", "-r", "hashed.txt")),
    "hash-missing": ("pip-hash-missing", ("--require-hashes", "-r", "unhashed.txt")),
    "unreachable": (
        "pip-unreachable",
        ("--isolated", "--index-url", "http://127.0.0.1:9/simple", "--retries", "1", "packaging"),
    ),
    "wrong-platform": ("pip-wheel-unsupported", ("./onnxruntime-1.20.1-cp36-cp36m-win_amd64.whl",)),
    "build-failed": ("pip-build-failed", ("./broken",)),
    "no-file": ("file-missing", ("-r", "nope.txt")),
    "invalid": ("pip-requirement-invalid", ("onnxruntime==1.2==3",)),
}
SETUP = "import sys\nsys.exit('cmake is not installed')\n"
PYTHON = {"20.3.4": "3.9", "21.3.1": "3.9", "22.3.1": "3.11"}


NOISE = (
    "Looking in ",
    "  Downloading ",
    "Collecting ",
    "Processing ",
    "Using Python",
    "Using CPython",
    "WARNING: Url",
    "WARNING: Location",
)
"""Lines that only name the searched locations."""


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case with one release of pip."""
    python = environment(
        f"pip-{release}", PYTHON.get(release, "3.12"), f"pip=={release}", "setuptools==75.8.0", "wheel"
    )
    (folder / "hashed.txt").write_text(f"packaging==24.1 --hash={WRONG}\n")
    (folder / "unhashed.txt").write_text("packaging==24.1\n")
    (folder / "onnxruntime-1.20.1-cp36-cp36m-win_amd64.whl").write_bytes(b"")
    (folder / "broken").mkdir()
    (folder / "broken" / "setup.py").write_text(SETUP)
    index = {key: value for key, value in os.environ.items() if key in ("PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE")}
    flags = [
        "install",
        "--target",
        "out",
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--no-color",
        "--progress-bar=off",
    ]
    actual = {}
    for case, (_, arguments) in CASES.items():
        extra = ["--no-build-isolation"] if case == "build-failed" else []
        text = said([python, "-m", "pip", *flags, *extra, *arguments], folder, **index)
        if "error" in text.lower():
            actual[case] = anonymous(text)
    return actual


def anonymous(text: str) -> str:
    """Return the text without the URL of the index."""
    kept = [line for line in text.splitlines() if not line.startswith(NOISE)]
    return re.sub(r"https?://(?!127\.|pip\.pypa|docs\.)[\w.:-]+", "https://pypi.org", "\n".join(kept))


def expected(release: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    actual = {case: entry for case, (entry, _) in CASES.items()}
    if Version(release) < Version("24.1"):
        actual["invalid"] = "pip-no-distribution"  # this release queries the index anyway
    return actual
