"""A uv that does not work is named as the cause, and neither the network nor the requirement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onnxgate.core.errors import ResolutionError
from onnxgate.project.lock.index import UvIndex

pytestmark = pytest.mark.skipif(os.name == "nt", reason="uv is replaced by a shell script")

UPGRADE = "`pip install --upgrade uv`"
CACHE = "`UV_CACHE_DIR` to another folder"
OLD = """\
if [ "$1" = --version ]; then echo "uv 0.6.10"; exit 0; fi
echo "error: unexpected argument '--format' found" >&2
exit 2
"""


def report(text: str, status: int = 2) -> str:
    """Return a script that prints an error and fails."""
    return f"cat >&2 <<'EOF'\n{text}\nEOF\nexit {status}\n"


@pytest.mark.parametrize(
    ("script", "message", "hint"),
    [
        (OLD, "uv 0.6.10 is too old; onnxgate needs uv 0.6.15 or newer", UPGRADE),
        ("exit 1\n", "uv failed without a message (exit status 1)", UPGRADE),
        ("exit 0\n", "uv did not write a valid `pylock.toml`", UPGRADE),
        (report("error: Failed to parse: `uv.toml`"), "uv failed: Failed to parse: `uv.toml`", "the settings of uv"),
        (
            report(
                "error: Failed to initialize cache\n"
                "  cause: failed to create directory `/r/uv`: Permission denied (os error 13)"
            ),
            "uv cannot resolve releases: `/r/uv`: permission denied",
            CACHE,
        ),
        (
            report(
                'error: Could not acquire lock\n  cause: Read-only file system (os error 30) at path "/r/uv/.tmp4B1RO6"'
            ),
            "uv cannot resolve releases: cannot write to `/r/uv`: read-only file system",
            CACHE,
        ),
        (
            report("memory allocation of 15 bytes failed", 134),
            "uv cannot resolve releases: there is not enough memory",
            "free up memory",
        ),
    ],
)
def test_a_uv_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str, hint: str) -> None:
    """The error names the fault and a remedy, in one line and with exit status 3."""
    program = tmp_path / "uv"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setattr("onnxgate.core.subprocesses.find_uv", lambda: str(program))

    with pytest.raises(ResolutionError) as caught:
        UvIndex().newest(Requirement("onnxruntime"), "3.11")

    assert message == caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 3
