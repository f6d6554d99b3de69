"""The lock stage: models and config compared with the lock."""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnx
import onnx.parser
import pytest

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import Place
from onnxgate.evidence.lock import LockConfigComparison, ModelLockComparison
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.lock.comparison import target_policy
from onnxgate.project.lock.lock_file import render_lock
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.project.lock.update import lock_models
from onnxgate.rules.lock.model_changed import model_changed
from onnxgate.stages import lock as lock_stage
from tests.harness.models import inspect_files

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }'
EXTERNAL = """
<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
<float[2] w = ["location": "w.bin", "offset": "0", "length": "8"]> { y = Add(x, w) }
"""
CONFIG = """models = ["*.onnx"]
opset = { "ai.onnx" = 17 }
ir-version = 8
[targets.cpu]
runtime = "onnxruntime"
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with two models, one of them with external data."""
    write(tmp_path / "a.onnx", TEXT)
    write(tmp_path / "b.onnx", EXTERNAL)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    (tmp_path / "onnxgate.toml").write_text(CONFIG)
    return load_config(tmp_path / "onnxgate.toml")


def write(path: Path, text: str) -> None:
    """Write ONNX text as a model."""
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString(deterministic=True))


def point(path: Path) -> None:
    """Replace a file with its Git LFS pointer."""
    path.write_text(POINTER.format(sha256_of(path), path.stat().st_size))


def lock_of(project: Project) -> Lock:
    """Return a lock of the project in its current state."""
    runtime = LockedRuntime(engine="onnxruntime", release="1.31.1", python="3.11", packages=())
    target = LockedTarget(policy=target_policy(project.config.targets["cpu"]), runtimes=(runtime,))
    return Lock(targets={"cpu": target}, models=lock_models(project.models(), {}, {}))


def gather(project: Project, lock: Lock, *paths: str) -> tuple[dict[str, ModelLockComparison], LockConfigComparison]:
    """Return the evidence of the stage, models by path."""
    models = project.models(paths, base=project.folder)
    against, whole = lock_stage.collect_evidence(project, lock, render_lock(lock), inspect_files(models, lock), [])
    return {each.facts.path: each for each in against}, whole


def test_current(project: Project) -> None:
    """Without changes, each model has its entry's line in the lock and no differences."""
    lock = lock_of(project)

    against, whole = gather(project, lock)

    assert {path: each.changes for path, each in against.items()} == {"a.onnx": (), "b.onnx": ()}
    line = render_lock(lock).split("\n").index('[models."b.onnx"]') + 1
    assert against["b.onnx"].place == Place("onnxgate.lock", line)
    assert against["a.onnx"].pinned_opsets == {"ai.onnx": 17}
    assert (against["a.onnx"].opset_place.line, against["a.onnx"].ir_place.line) == (2, 3)
    assert whole == LockConfigComparison(Place("onnxgate.lock"), (), {})


def test_unlocked(project: Project) -> None:
    """A model without an entry is placed at its own file."""
    lock = lock_of(project)
    del lock.models["a.onnx"]

    against, _ = gather(project, lock)

    assert (against["a.onnx"].entry, against["a.onnx"].place) == (None, Place("a.onnx"))


def test_changed(project: Project) -> None:
    """Changes are described in words."""
    lock = lock_of(project)
    write(project.folder / "a.onnx", TEXT.replace("17", "18").replace("float[N, 4] x", "float[1, 4] x"))

    against, _ = gather(project, lock)

    assert against["a.onnx"].changes == (
        "input `x` has shape [1, 4] instead of [N, 4]",
        "imports opset 18 of `ai.onnx` instead of 17",
    )


def test_changed_data(project: Project) -> None:
    """Changed external data is a change of the model."""
    lock = lock_of(project)
    (project.folder / "w.bin").write_bytes(bytes([1] * 8))

    against, _ = gather(project, lock)

    assert against["b.onnx"].changes == ("data file `w.bin` has different content",)


@pytest.mark.parametrize("content", [None, b"short"])
def test_broken_data(project: Project, content: bytes | None) -> None:
    """Missing or truncated data is reported by the file stage, not here."""
    lock = lock_of(project)
    if content is None:
        (project.folder / "w.bin").unlink()
    else:
        (project.folder / "w.bin").write_bytes(content)

    against, _ = gather(project, lock)

    assert against["b.onnx"].changes == ()


def test_pointer_to_the_locked_content(project: Project) -> None:
    """A pointer with the locked hash is checked with the facts from the lock."""
    lock = lock_of(project)
    point(project.folder / "a.onnx")

    against, _ = gather(project, lock)

    assert against["a.onnx"].facts.opsets == {"ai.onnx": 17}
    assert against["a.onnx"].changes == ()


def test_pointer_to_other_content(project: Project) -> None:
    """A pointer with another hash is not compared."""
    lock = lock_of(project)
    write(project.folder / "a.onnx", TEXT.replace("17", "18"))
    point(project.folder / "a.onnx")

    against, _ = gather(project, lock)

    assert "a.onnx" not in against


@pytest.mark.parametrize(
    ("key", "value"),
    [("ir_version", 10), ("opsets", {"ai.onnx": 9}), ("inputs", ()), ("size_bytes", 1), ("metadata_keys", ("author",))],
)
def test_edited_entry(project: Project, key: str, value: object) -> None:
    """An entry with the right sha256 and a wrong fact results in a finding that names the fact."""
    lock = lock_of(project)
    edited = msgspec.structs.replace(lock.models["a.onnx"], **{key: value})

    against, _ = gather(project, msgspec.structs.replace(lock, models={**lock.models, "a.onnx": edited}))
    (hit,) = model_changed.judge(against["a.onnx"])

    assert against["b.onnx"].misrecorded == ()
    assert hit.message == f"has the locked content, but its entry in the lock is wrong: `{key.replace('_', '-')}`"


@pytest.mark.parametrize("pointed", [False, True])
def test_external_data_of_a_pointer(project: Project, pointed: bool) -> None:
    """If the model is a pointer, its external data is compared separately, as content or as a pointer."""
    lock = lock_of(project)
    point(project.folder / "b.onnx")
    assert gather(project, lock)[0]["b.onnx"].changes == ()
    (project.folder / "w.bin").write_bytes(bytes([1] * 8))
    if pointed:
        point(project.folder / "w.bin")

    against, _ = gather(project, lock)

    assert against["b.onnx"].changes == ("data file `w.bin` has different content",)


def test_no_model(project: Project) -> None:
    """A file that is not a model is reported by the file stage, not here."""
    lock = lock_of(project)
    (project.folder / "a.onnx").write_text("<html></html>")

    against, whole = gather(project, lock)

    assert list(against) == ["b.onnx"]
    assert whole.vanished == {}


def test_vanished(project: Project) -> None:
    """A removed model is found even if other paths are selected."""
    lock = lock_of(project)
    (project.folder / "a.onnx").unlink()
    again = load_config(project.path)

    against, whole = gather(again, lock, "b.onnx")

    assert (list(against), list(whole.vanished)) == (["b.onnx"], ["a.onnx"])


def test_stale_policy(project: Project) -> None:
    """The config's targets are compared with the locked ones."""
    lock = lock_of(project)
    project.path.write_text(project.path.read_text() + '[targets.server]\nruntime = "onnxruntime"\n')

    _, whole = gather(load_config(project.path), lock)

    assert whole.differences == ("target `server` is not locked",)


def test_entry_is_complete(project: Project) -> None:
    """The entry contains all facts of the model."""
    entry = lock_of(project).models["b.onnx"]

    assert msgspec.json.decode(msgspec.json.encode(entry)) == {
        "sha256": sha256_of(project.folder / "b.onnx"),
        "size-bytes": (project.folder / "b.onnx").stat().st_size,
        "ir-version": 8,
        "opsets": {"ai.onnx": 17},
        "inputs": [{"name": "x", "type": "tensor(float)", "shape": [2]}],
        "outputs": [{"name": "y", "type": "tensor(float)", "shape": [2]}],
        "operators": {"Add": 1},
        "external": [{"location": "w.bin", "size-bytes": 8, "sha256": sha256_of(project.folder / "w.bin")}],
    }
