"""A source cannot read the credentials of the CI system from the processes of onnxgate."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.harness.models import write

PYTHON = "/usr/bin/python3"
NOBODY = 65534
SOURCE = """
import os, re, shutil, sys

SECRET = b"4f9c" + b"-secret"  # not in this text, which is in the memory of this process

def holds_secret(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if SECRET in file.read():
                return True
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                begin, end, mode = re.match("([0-9a-f]+)-([0-9a-f]+) (.)", line).groups()
                try:
                    memory.seek(int(begin, 16))
                    if mode == "r" and SECRET in memory.read(int(end, 16) - int(begin, 16)):
                        return True
                except (OSError, OverflowError, ValueError):  # of the kernel
                    continue
    except OSError:
        return False

processes = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
with open("seen", "w") as seen:
    print(os.getuid(), sorted(filter(holds_secret, processes)), file=seen)
shutil.copy("small.onnx", sys.argv[1])
"""
CONFIG = f"""
models = ["small.onnx"]
[targets.server]
runtime = "onnxruntime>=1.18,<1.20"
[toolchain]
python = "{PYTHON}"
[[model]]
path = "small.onnx"
command = ["{{python}}", "curious.py", "{{output}}"]
"""
START = """
import sys
sys.path[:0], sys.argv[1:] = sys.argv[1].split(":"), sys.argv[2:]
from onnxgate.__main__ import main
main()
"""


def start_command() -> list[str]:
    """Return the start of a command that an unprivileged user can run."""
    paths = ":".join([str(ROOT), *(entry for entry in sys.path if entry.endswith("-packages"))])
    return [PYTHON, "-I", "-c", START, paths]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a project of an unprivileged user. The folders of pytest belong to root."""
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("needs root, to run onnxgate as a user that cannot inspect the test itself")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "small.onnx")
        (folder / "curious.py").write_text(SOURCE)
        (folder / "onnxgate.toml").write_text(CONFIG)
        shutil.copy(ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock", folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        yield folder


def test_a_source_cannot_inspect_onnxgate(folder: Path) -> None:
    """No process that a source can inspect has the credentials in its variables or memory."""
    variables = {"PATH": os.defpath, "HOME": str(folder), "ONNXGATE_CACHE_DIR": str(folder / "cache")}
    variables |= {"INPUT_TOKEN": "4f9c-secret", "LANG": "C.UTF-8"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*start_command(), *arguments]
        return subprocess.run(
            command, cwd=folder, env=variables, user=NOBODY, group=NOBODY, capture_output=True, text=True, check=False
        )

    if run("--version").returncode != 0:
        pytest.skip(f"{PYTHON} cannot run onnxgate as an unprivileged user")
    run("lock", "--offline")
    checked = run("check", "--stage", "export")

    assert (checked.returncode, (folder / "seen").read_text()) == (0, f"{NOBODY} []\n"), checked.stderr
