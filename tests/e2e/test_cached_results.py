"""A second check of the same bytes: what is run, what is taken over, and what is said of it."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import onnx
import pytest

import onnxgate
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

COUNTING = """
import sys
from pathlib import Path
from onnxgate.runtimes.pool import WorkerPool
WorkerPool.__init__.__kwdefaults__.update(worker=Path(sys.argv[1]), limited=False)
sys.argv = ["onnxgate", "check", *sys.argv[2:]]
from onnxgate.cli import main
main()
"""
NOTING = """

_create_real_session = _create_session


def _create_session(job, phase):
    with open({path!r}, "a") as file:
        file.write("%s %s %s\\n" % (ort.__version__, job["optimization"], os.path.basename(job["model"])))
    return _create_real_session(job, phase)
"""


@pytest.fixture
def alone(small: Repository, tmp_path: Path) -> Repository:
    """The same with a cache of its own for results, beside the environments of all."""
    shared, own = Path(small.environment["ONNXGATE_CACHE_DIR"]), tmp_path / "own cache"
    own.mkdir()
    (shared / "environments").mkdir(parents=True, exist_ok=True)
    (own / "environments").symlink_to(shared / "environments")
    return small.given(ONNXGATE_CACHE_DIR=own)


def sessions(repository: Repository, folder: Path, *arguments: str) -> Counter[str]:
    """How often each model was loaded, by release and level, in one check."""
    worker, noted = folder / "worker", folder / "sessions"
    shutil.rmtree(worker, ignore_errors=True)
    shutil.copytree(Path(onnxgate.__file__).parent / "runtimes" / "worker", worker)
    with (worker / "adapters" / "onnxruntime.py").open("a", encoding="utf-8") as file:
        file.write(NOTING.format(path=str(noted)))
    noted.write_text("", encoding="utf-8")
    python = repository.program.with_name("python")
    command = [str(python), "-c", COUNTING, str(worker), *arguments]
    subprocess.run(command, cwd=repository.folder, env=repository.environment, check=True, capture_output=True)
    return Counter(noted.read_text(encoding="utf-8").splitlines())


def test_every_session_is_made_once_and_then_never_again(alone: Repository, tmp_path: Path) -> None:
    """One for each release and level, for all cases; the next check needs none, unless it is asked for."""
    first = sessions(alone, tmp_path)

    assert len(first) == 4
    assert set(first.values()) == {1}
    assert sessions(alone, tmp_path) == Counter()
    assert sessions(alone, tmp_path, "--no-cache") == first


def test_it_is_said_what_was_taken_over(alone: Repository) -> None:
    """In the counts and in words; the verdict is the same."""
    before, after = alone.report(), alone.report()

    assert (before["counts"]["reused"], after["counts"]["reused"]) == (0, 4)
    assert before["cells"] == after["cells"]
    assert "4 runs taken over from an earlier check of the same bytes" in alone.run("check").out
    assert alone.report("--seed", "1")["counts"]["reused"] == 0


def test_one_byte_more_is_run(alone: Repository) -> None:
    """Though it says nothing that a runtime would look at."""
    alone.report()
    path = alone.folder / "models" / "small.onnx"
    model = onnx.load(path)
    model.producer_version += "1"
    onnx.save(model, path)
    alone.run("lock", "--offline")

    assert alone.report()["counts"]["reused"] == 0
