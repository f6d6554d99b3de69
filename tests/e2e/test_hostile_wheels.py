"""Commands run the code of locked packages only in the sandbox, if at all."""

from __future__ import annotations

import os
from pathlib import Path

import onnx.parser
import pytest

from tests.harness.models import write
from tests.harness.repositories.user_repository import Repository, wait
from tests.project.lock.conftest import LocalIndex, local_index
from tests.runtimes.environments.test_hostile_packages import (
    MINOR,
    NUMPY,
    REFUSED,
    SECRET,
    Attacker,
    attacker,
    build_wheel,
    pytestmark,
)

__all__ = ["attacker", "local_index", "pytestmark"]

CONFIG = 'models = ["*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.31"\nselect = "newest"\n'
NEW = '<ir_version: 99, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) { y = Abs(x) }'
USED_VARIABLES = ("UV_NO_CONFIG", "UV_DEFAULT_INDEX", "UV_CACHE_DIR")


@pytest.fixture
def repository(command: Repository, local_index: LocalIndex, attacker: Attacker, tmp_path: Path) -> Repository:
    """Return a repository whose engine attacks, and for which a newer release is published after it was locked."""

    def publish(name: str, version: str, files: dict[str, str]) -> None:
        package = build_wheel(tmp_path / "wheels", name, files, version)
        file = package.wheels[0].file
        local_index.files.setdefault(name, {})[file] = (tmp_path / "wheels" / file).read_bytes()

    publish("numpy", "2.3.1", {"numpy.py": NUMPY})
    publish("onnxruntime", "1.31.1", attacker.files)
    variables = {name: os.environ[name] for name in USED_VARIABLES}
    repository = command.at(tmp_path / "repository").with_environment(
        **variables, ONNXGATE_CACHE_DIR=tmp_path / "cache", HF_TOKEN=SECRET, GITHUB_TOKEN=SECRET, AWS_SECRET=SECRET
    )
    write(repository.folder / "small.onnx")
    (repository.folder / "new.onnx").write_bytes(onnx.parser.parse_model(NEW).SerializeToString())
    repository.write("onnxgate.toml", CONFIG)
    repository.run("lock")
    publish("onnxruntime", "1.32.0", attacker.files)
    return repository


@pytest.mark.skipif(MINOR != "3.11", reason="the lock prefers Python 3.11")
def test_commands(repository: Repository, attacker: Attacker) -> None:
    """Neither a `.pth` file nor the import of the engine gets the network, the user's files or secrets."""
    expected = {
        "check": (1, True),
        "matrix . --verify": (1, True),
        "runtimes prepare": (3, True),
        "lock --upgrade --preview": (3, True),
        "fix": (3, True),
        "export": (0, False),
        "lock --measure": (0, False),
        "lock --upgrade": (0, False),
    }
    actual = {}
    for arguments in expected:
        with repository.start(*arguments.split()) as process:
            result = wait(process)
        actual[arguments] = (result.status, REFUSED in result.out + result.err)

    assert actual == expected
    assert attacker.gains() == []
