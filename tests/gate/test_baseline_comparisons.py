"""Models and their baselines are read once, in child processes, and not at all if a cached comparison exists."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxgate.core import process_pool
from onnxgate.core.files import sha256_of
from onnxgate.gate import static_cache
from onnxgate.gate.static import StaticAnalyzer
from onnxgate.gate.static_cache import StaticResultCache
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.reading import structure
from onnxgate.model.reading.view import ModelView
from onnxgate.stages.changes import file_comparison
from onnxgate.stages.changes.file_comparison import BaseFiles, ContentQuery, compare_files
from onnxgate.stages.changes.stage import DetectedChanges
from tests.conftest import need
from tests.harness.models import HEAD, inspect_files, parse, write
from tests.harness.repositories.checkout import ROOT, commit, git
from tests.stages.test_changes_stage import CONFIG, GPU_TOO, NET, OPSET_21, Repository, only_change, point

Calls = Callable[[], list[str]]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Create a repository with two committed models, one of them with external data."""
    made = Repository(tmp_path / "repository")
    made.write("a.onnx")
    made.write_external("b.onnx")
    made.commit()
    return made


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return a function that returns the calls made in child processes since its last call."""
    asked: list[str] = []
    run = process_pool.ProcessPool.run

    def recorded(
        self: process_pool.ProcessPool, calls: list[process_pool.Call[object, object]], **named: int
    ) -> object:
        names = (call.function.__name__ for call in calls)
        asked.extend(name for name in names if name != "_serve")  # functions of onnx, which run in their own process
        return run(self, calls, **named)  # type: ignore[arg-type]

    def since() -> list[str]:
        actual = asked.copy()
        asked.clear()
        return actual

    monkeypatch.setattr(process_pool.ProcessPool, "run", recorded)
    return since


def compare(repository: Repository, *, fresh: bool = False, jobs: int = 0) -> DetectedChanges:
    """Compare with `HEAD`, with a cache next to the repository."""
    folder = repository.root.parent / "kept"
    folder.mkdir(exist_ok=True)
    with StaticAnalyzer(jobs, StaticResultCache(folder, repository.root, fresh=fresh)) as analyzer:
        return repository.since(analyzer=analyzer)


BOTH = ["read_base", "compare_files"]


def test_each_file_is_read_once(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts, releases and weights are computed from one reading of each file after the file stage, in one traversal."""
    repository.write("a.onnx", NET.replace("4}", "5}"))
    read: list[str] = []
    walked: list[object] = []
    view, walk = structure.read_view, ModelView.__init__

    def counted(path: Path, **bounds: int) -> ModelView:
        read.append(path.name if path.is_relative_to(repository.root) else "base")
        return view(path, **bounds)

    def counted_walk(self: ModelView, *arguments: object) -> None:
        walked.append(self)
        walk(self, *arguments)  # type: ignore[arg-type]

    for module in (structure, file_comparison):
        monkeypatch.setattr(module, "read_view", counted)
    monkeypatch.setattr(ModelView, "__init__", counted_walk)
    inspect_files(repository.project().models(), repository.old_lock())
    by_file_stage = [*read], len(walked)
    read.clear()
    walked.clear()
    repository.since()

    assert sorted(read) == sorted([*by_file_stage[0], "a.onnx", "base"])
    assert len(walked) == by_file_stage[1] + 2


def test_nothing_is_read_again(repository: Repository, calls: Calls) -> None:
    """The second comparison is read entirely from the cache and has the same result."""
    repository.write("a.onnx", NET.replace("4}", "5}"), OPSET_21)
    repository.write_external("b.onnx", NET.replace("4}", "7}"))
    first = compare(repository)
    cold = calls()
    second = compare(repository)

    assert cold == BOTH * 2
    assert calls() == []
    assert second == first == repository.since()
    assert [change.weights and change.weights.largest for change in first.subjects] == [1.0, 3.0]


def test_without_the_cache(repository: Repository, calls: Calls) -> None:
    """`--no-cache` repeats the comparison, and stores the result for later checks."""
    repository.write("a.onnx", NET.replace("4}", "5}"))
    compare(repository)
    calls()
    compare(repository, fresh=True)
    uncached = calls()
    compare(repository)

    assert uncached == BOTH
    assert calls() == []


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("present", ["compare_files"]),
        ("present data", ["compare_files"]),
        ("base", BOTH),
        ("base data", ["compare_files"]),
        ("providers", ["compare_files"]),
        ("extensions", ["compare_files"]),
        ("program", BOTH),
        ("versions", []),
        ("name", []),
    ],
)
def test_cache_key_of_a_comparison(
    repository: Repository, calls: Calls, what: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache key covers both files with their data, the targets' providers and extensions, and onnxgate's code."""
    (repository.folder / "models" / "a.onnx").unlink()
    repository.commit()
    repository.write_external("b.onnx", NET.replace("4}", "5}"))
    compare(repository)
    calls()
    match what:
        case "present":
            repository.write_external("b.onnx", NET.replace("Add", "Mul"))
        case "present data":
            repository.write_external("b.onnx", NET.replace("4}", "6}"))
        case "base":
            repository.write_external("b.onnx", NET.replace("Add", "Sub"))
            repository.commit()
            repository.write_external("b.onnx", NET.replace("4}", "5}"))
        case "base data":
            repository.write_external("b.onnx", NET.replace("4}", "9}"))
            repository.commit()
            repository.write_external("b.onnx", NET.replace("4}", "5}"))
        case "providers":
            repository.config = CONFIG + GPU_TOO
        case "extensions":
            repository.config = CONFIG + 'extensions = ["onnxruntime-extensions"]\n'
        case "program":
            monkeypatch.setattr(static_cache, "_digest_program", lambda: ("another",))
        case "versions":
            repository.config = CONFIG.replace(">=1.17", ">=1.20")
        case _:
            repository.move("b.onnx", "deep/b.onnx")
            repository.move("w.bin", "deep/w.bin")

    comparison = compare(repository)

    assert calls() == expected
    assert comparison == repository.since()


@pytest.mark.parametrize("what", ["missing", "short"])
def test_weights_that_cannot_be_read(repository: Repository, calls: Calls, what: str) -> None:
    """An incomplete comparison is reported again; files are read again only if all of them exist."""
    data = repository.folder / "models" / "w.bin"
    if what == "missing":
        git(repository.root, "rm", "--quiet", "--cached", "models/w.bin")
        git(repository.root, "commit", "--quiet", "--message=without data")
        reason = "`models/w.bin` does not exist at `HEAD`"
    else:
        data.write_bytes(data.read_bytes()[:-4])
        commit(repository.root)
        reason = "weight `w` cannot be read: `w.bin` is truncated"
    repository.write_external("b.onnx", NET.replace("4}", "5}"))
    first = compare(repository)
    calls()
    second = compare(repository)

    assert first == second
    assert calls() == (["compare_files"] if what == "short" else [])
    assert reason in first.remarks[0]


def test_a_file_that_changed_meanwhile(tmp_path: Path) -> None:
    """A result for a file that changed in the meantime is not stored under the key of the old content."""
    file = write(tmp_path / "a.onnx", parse())
    digest = sha256_of(file)
    analyzer = StaticAnalyzer(0, StaticResultCache(tmp_path / "kept", tmp_path))
    analyzer.keep(("same",), "answer", {file: digest})
    file.write_bytes(file.read_bytes() + b"\n")
    analyzer.keep(("changed",), "answer", {file: digest})

    assert [analyzer.recall((key,), str) for key in ("same", "changed")] == ["answer", None]


def test_corrupted_git_lfs_content_is_not_cached(repository: Repository, tmp_path: Path) -> None:
    """A corrupted file in Git LFS storage is compared, but the result is not stored under its expected digest."""
    present, base = write(tmp_path / "a.onnx", parse()), write(tmp_path / "b.onnx", parse())
    query = ContentQuery(present, BaseFiles(base, base, ((base, "00" * 32),)), ())

    assert not compare_files(query).lasting


def test_pointer_and_content_share_a_key(repository: Repository, calls: Calls) -> None:
    """A baseline in Git LFS has the same key as its content, so it is read once for all branches."""
    need("git-lfs")
    file = repository.folder / "models" / "a.onnx"
    content = point(file)
    digest = file.read_text().split("sha256:")[1][:64]
    stored = repository.root / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    commit(repository.root)
    repository.write("a.onnx", NET.replace("4}", "5}"))
    first = compare(repository)
    cold = calls()
    second = compare(repository)

    assert (cold, calls()) == (BOTH, [])
    assert first == second
    assert only_change(second).weights == WeightChanges(changed=1, of=1, largest=1.0, name="w")


def test_a_base_that_is_not_here(repository: Repository, calls: Calls) -> None:
    """Without the baseline only the present model is predicted; after it is fetched, both are compared."""
    file = repository.folder / "models" / "a.onnx"
    repository.lock()
    content = point(file)
    digest = file.read_text().split("sha256:")[1][:64]
    repository.commit(locked=False)
    repository.write("a.onnx", NET.replace("4}", "5}"), OPSET_21)
    first = compare(repository)
    cold = calls()
    second = compare(repository)
    warm = calls()
    stored = repository.root / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    third = compare(repository)

    assert (cold, warm, calls()) == (["compare_files"], [], BOTH)
    assert first == second
    assert "(content not fetched)" in first.undone[0].reason
    assert only_change(third).minimums != ()


@pytest.mark.skipif(sys.platform != "linux", reason="crashes are bounded by what Linux has")
@pytest.mark.parametrize("what", ["extract_facts", "infer_model_types"])
def test_a_crash_leaves_one_model_undecided(repository: Repository, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A crash of onnx on a baseline does not end the check; facts are still compared, and other models checked."""
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: True)  # a forked child inherits the patched function
    repository.write("a.onnx", NET.replace("[N, 4] y", "[N, 4] z").replace("y = Add", "z = Add"))
    repository.write_external("b.onnx", NET.replace("4}", "5}"))
    real = getattr(file_comparison, what)

    def crashing(view: ModelView, *rest: object) -> object:
        if not view.external and view.proto.graph.output[0].name == "y":
            faulthandler.disable()
            ctypes.string_at(0)
        return real(view, *rest)

    monkeypatch.setattr(file_comparison, what, crashing)
    for _ in range(2):  # a crash is not cached
        comparison = compare(repository, jobs=1)

        (undone,) = comparison.undone
        assert (undone.model, undone.stage) == ("models/a.onnx", "lock")
        assert "crashed (SIGSEGV)" in undone.reason
        assert comparison.remarks == []
        assert [change.after.path for change in comparison.subjects] == [
            *(["models/a.onnx"] if what == "infer_model_types" else []),
            "models/b.onnx",
        ]


THREADS = """
import os, sys
from pathlib import Path
from onnxgate.stages.changes.file_comparison import BaseFiles, ContentQuery, compare_files
base, present = map(Path, sys.argv[1:])
compare_files(ContentQuery(present, BaseFiles(base, base), ()))
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a child is limited on Linux only")
def test_a_comparison_starts_no_threads(tmp_path: Path) -> None:
    """On a machine with many cores, NumPy's threads alone would exceed a child's memory limit."""
    files = [write(tmp_path / name, parse(NET)) for name in ("a.onnx", "b.onnx")]
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", THREADS, *files], capture_output=True, text=True, check=True, env=environment
    )

    assert done.stdout.split() == ["True", "1"]


LIGHT = """
import sys
from onnxgate.cli import main
sys.argv = ["onnxgate", "check", "--static", "--offline", "-q", "--against", "HEAD"]
try:
    main()
except SystemExit as ended:
    print(ended.code, sorted({"onnx", "numpy"} & set(sys.modules)), file=sys.stderr)
"""


def test_an_unchanged_comparison_stays_light(tmp_path: Path) -> None:
    """The main process imports neither onnx nor numpy to compare a model, cached or not."""
    folder = shutil.copytree(ROOT / "fixtures" / "projects" / "quickstart", tmp_path / "project")
    model = next(folder.rglob("*.onnx"))
    content = model.read_bytes()
    write(model, parse(NET, HEAD))
    commit(folder)
    model.write_bytes(content)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, cwd=folder, env=environment
        )

        assert done.stderr.splitlines()[-1].endswith(" []"), done.stderr
