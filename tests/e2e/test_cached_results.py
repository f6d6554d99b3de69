"""A second check of unchanged files reuses cached results and reports how many."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import onnx
import pytest

import onnxgate
from tests.conftest import ROOT
from tests.harness.repositories.checkout import commit
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
def isolated_cache(small: Repository, tmp_path: Path) -> Repository:
    """Return the small repository with its own result cache and the shared environments."""
    shared, own = Path(small.environment["ONNXGATE_CACHE_DIR"]), tmp_path / "own cache"
    own.mkdir()
    (shared / "environments").mkdir(parents=True, exist_ok=True)
    (own / "environments").symlink_to(shared / "environments")
    return small.with_environment(ONNXGATE_CACHE_DIR=own)


def sessions(repository: Repository, folder: Path, *arguments: str) -> Counter[str]:
    """Return how often one check loaded each model, by release and optimization level."""
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


def test_each_session_is_created_once(isolated_cache: Repository, tmp_path: Path) -> None:
    """Each model is loaded once per release and level, and not loaded again unless `--no-cache` is used."""
    first = sessions(isolated_cache, tmp_path)

    assert len(first) == 4
    assert set(first.values()) == {1}
    assert sessions(isolated_cache, tmp_path) == Counter()
    assert sessions(isolated_cache, tmp_path, "--no-cache") == first


def test_reused_results_are_reported(isolated_cache: Repository) -> None:
    """The counts and `-v` show reused results; the verdict is the same."""
    before, after = isolated_cache.report(), isolated_cache.report()

    assert (before["counts"]["reused"], after["counts"]["reused"]) == (0, 4)
    assert before["cells"] == after["cells"]
    assert "4 results reused from cache (disable with `--no-cache`)" in isolated_cache.run("check", "-v").out
    lines = isolated_cache.run("check", "-v", "--no-cache").err.splitlines()
    assert any(line.startswith("environments: ") for line in lines)
    assert any("environment reused (" in line for line in lines)
    assert isolated_cache.report("--seed", "1")["counts"]["reused"] == 0


def test_changed_byte_invalidates_results(isolated_cache: Repository) -> None:
    """Any changed byte invalidates the results, even in metadata that runtimes ignore."""
    isolated_cache.report()
    path = isolated_cache.folder / "models" / "small.onnx"
    model = onnx.load(path)
    model.producer_version += "1"
    onnx.save(model, path)
    isolated_cache.run("lock", "--offline")

    assert isolated_cache.report()["counts"]["reused"] == 0


FAULTY = ("ceil-pool", "custom-operator", "ir-13", "overflow", "trees", "wrong-reshape")
"""Models of the broken project that mismatch, do not load, are not finite, are too new or undecided."""
IDLE = """
import os, subprocess, sys
def refuse(*arguments, **named):
    raise AssertionError(f"a program is started: {arguments}")
os.fork = refuse
from onnxgate.runtimes.pool import WorkerPool
WorkerPool.__init__ = refuse
sys.argv = ["onnxgate", "check", "--output", "text=report"]
from onnxgate.cli import main
try:
    main()
finally:
    print(sorted({"onnx", "numpy"}.intersection(sys.modules)))
"""


@pytest.fixture
def faulty(isolated_cache: Repository) -> Repository:
    """Return the repository with models that do not pass."""
    for name in FAULTY:
        shutil.copy(
            ROOT / "fixtures" / "projects" / "broken" / "models" / f"{name}.onnx", isolated_cache.folder / "models"
        )
    isolated_cache.run("lock", "--offline")
    commit(isolated_cache.folder)
    return isolated_cache


def test_report_of_unchanged_models_is_the_same(faulty: Repository) -> None:
    """Cold, cached and `--no-cache` reports are the same for every outcome, except the number of reused results."""
    reports = [faulty.report(*arguments, status=1) for arguments in ((), (), ("--no-cache",), ())]
    reused = [report["counts"].pop("reused") for report in reports]

    assert [reports[0]] * 4 == reports
    assert [0, 0] == reused[::2]
    assert reused[1] == reused[3] >= 2 * len(reports[0]["models"])
    assert {"parity", "runtime"} & {part["stage"] for part in reports[0]["undecided"]}


def test_unchanged_models_start_no_process(faulty: Repository) -> None:
    """No environment, worker or child process is started, and neither onnx nor numpy is imported."""
    faulty.report(status=1)
    python = faulty.program.with_name("python")
    result = subprocess.run(
        [str(python), "-c", IDLE],
        cwd=faulty.folder,
        env=faulty.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "[]") == (result.returncode, result.stdout.strip().splitlines()[-1]), result.stderr


def test_only_the_changed_model_is_run(faulty: Repository, tmp_path: Path) -> None:
    """Results of other models are reused, and findings have the current line numbers of the lock."""
    before = faulty.report(status=1)
    path = faulty.folder / "models" / "ceil-pool.onnx"
    model = onnx.load(path)
    model.metadata_props.add(key="note", value="another")
    onnx.save(model, path)
    faulty.run("lock", "--offline")
    after, cold = faulty.report(status=1), faulty.report("--no-cache", status=1)
    counts = [report.pop("counts") for report in (before, after, cold)]

    assert cold == after
    assert before["findings"] != after["findings"]
    assert 0 < counts[1]["reused"] < 2 * counts[1]["ran"]
