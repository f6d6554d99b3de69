"""The file stage: evidence about each selected file, and the findings of its rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.file import ModelFile
from onnxgate.model.facts import ExternalFile
from onnxgate.model.reading.file_format import LfsPointer
from onnxgate.project.config.project import MergedSettings, SelectedModel
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.rules.file.lfs_pointer import lfs_pointer
from tests.harness.models import inspect_files, parse, write
from tests.model.reading.test_external_data import external_model
from tests.model.reading.test_file_format import OID, POINTER


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the config's folder `ml` in a git repository."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "ml").mkdir()
    return tmp_path / "ml"


def select(folder: Path, path: str) -> SelectedModel:
    """Return a selected model that no entry of the config matches."""
    return SelectedModel(path, folder / path, MergedSettings(), Place(path))


def look(folder: Path, path: str, lock: Lock | None = None) -> ModelFile:
    """Return the evidence about one model."""
    return inspect_files([select(folder, path)], lock)[0]


def locked(sha256: str = "", external: tuple[ExternalFile, ...] = ()) -> Lock:
    """Return a lock with one model."""
    entry = LockedModel(sha256=sha256, size_bytes=12345, ir_version=8, opsets={}, external=external)
    return Lock(models={"models/a.onnx": entry})


def test_valid_model(project: Path) -> None:
    """A valid model has facts and no problems."""
    write(project / "models/a.onnx")

    file = look(project, "models/a.onnx")

    assert (file.facts and file.facts.path, file.git_path, file.is_complete, file.graph.invalid, file.other_type) == (
        "models/a.onnx",
        "ml/models/a.onnx",
        True,
        None,
        "",
    )


def test_model_newer_than_onnx(project: Path) -> None:
    """A model that is too new for onnx is unchecked, without a finding."""
    write(project / "m.onnx", parse(head='<ir_version: 8, opset_import: ["": 99]>'))
    file = look(project, "m.onnx")

    assert "does not support opset 99 of `ai.onnx`" in file.graph.unchecked
    assert file.graph.invalid is None


def test_order_is_kept(project: Path) -> None:
    """The evidence is in the order of the selection."""
    for name in ("b.onnx", "a.onnx"):
        write(project / name)

    files = inspect_files([select(project, "b.onnx"), select(project, "a.onnx")], None)

    assert [file.path for file in files] == ["b.onnx", "a.onnx"]


def test_pointer(project: Path) -> None:
    """A pointer that the lock does not describe has no finding, because the check of the model is undecided."""
    (project / "a.onnx").write_text(POINTER)

    file = look(project, "a.onnx")

    assert (LfsPointer(OID, 12345), False, []) == (file.pointer, file.is_complete, list(lfs_pointer.judge(file)))


@pytest.mark.parametrize(("sha256", "count"), [(OID, 1), ("0" * 64, 0), ("", 0)])
def test_locked_pointer_is_a_note(project: Path, sha256: str, count: int) -> None:
    """A pointer with the locked hash results in a note; the fix names the path relative to the git root."""
    (project / "models").mkdir()
    (project / "models/a.onnx").write_text(POINTER)

    fixes = [hit.fix for hit in lfs_pointer.judge(look(project, "models/a.onnx", locked(sha256)))]

    assert count == len(fixes)
    assert all('--include "ml/models/a.onnx"' in fix for fix in fixes)


def test_locked_pointer_of_another_size(project: Path) -> None:
    """A pointer with the locked hash and another size does not match the lock."""
    (project / "models").mkdir()
    (project / "models/a.onnx").write_text(POINTER)
    lock = locked(OID)

    assert look(project, "models/a.onnx", lock).pointer_is_locked
    (project / "models/a.onnx").write_text(POINTER.replace("12345", "12346"))
    assert not look(project, "models/a.onnx", lock).pointer_is_locked


def test_pointer_of_data_is_one_note(project: Path) -> None:
    """Both tensors in a data file that was not fetched share one finding."""
    write(project / "models/a.onnx", external_model())
    (project / "models/w.bin").write_text(POINTER)

    file = look(project, "models/a.onnx", locked(external=(ExternalFile("w.bin", 12345, OID),)))
    (hit,) = lfs_pointer.judge(file)

    assert (False, True) == (file.is_complete, '--include "ml/models/w.bin"' in hit.fix)


@pytest.mark.parametrize("content", [b"", b"<html>", parse().SerializeToString()[:40], b"\x08\x08\x3a\x02\x0a\x7f"])
def test_invalid_model_has_no_facts(project: Path, content: bytes) -> None:
    """A file that is not a model has no facts and no other finding."""
    (project / "a.onnx").write_bytes(content)

    file = look(project, "a.onnx")

    assert (bool(file.other_type), file.facts, file.graph.invalid) == (True, None, None)


def test_absent_model(project: Path) -> None:
    """A missing model file does not crash the stage."""
    assert look(project, "a.onnx").other_type == "not there"


def test_unreadable_file(project: Path) -> None:
    """An unreadable file has a reason and does not stop the others."""
    (project / "a.onnx").symlink_to("a.onnx")

    assert look(project, "a.onnx").unreadable == "too many levels of symbolic links"


def test_broken_external_data_are_one_fault(project: Path) -> None:
    """Invalid external data is not reported again with the message of onnx.checker."""
    write(project / "a.onnx", external_model("../../escape.bin"))

    file = look(project, "a.onnx")

    assert ([use.problem for use in file.external], file.graph.invalid) == (["escapes", "escapes"], None)


def test_passthrough(project: Path) -> None:
    """Only an input that is also an output counts; an initializer with the same name does not."""
    text = """g (float[N] x, float[N] m, float[1] w) => (float[N] y, float[N] m, float[1] w)
    <float[1] w = {1}> { y = Add (x, w) }"""
    write(project / "a.onnx", text)

    assert look(project, "a.onnx").graph.passthroughs == ("m",)


def test_fault_is_shown_on_its_source_line(project: Path) -> None:
    """A finding about a node is placed at the source line that created it."""
    model = parse("g (float[N] x) => (float[N] y) { [n] y = Relu <a = 1> (x) }")
    trace = 'File "/elsewhere/ml/net.py", line 2, in forward\n    return relu(x)\n'
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    write(project / "a.onnx", model)
    (project / "net.py").write_text("def forward(x):\n    return relu(x)\n")

    file = look(project, "a.onnx")

    assert (file.graph.invalid and file.graph.invalid.node, file.graph.place) == ("n", Place("net.py", 2))
