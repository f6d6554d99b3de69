"""Model entries of the lock, and models that cannot be locked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnx
import onnx.parser
import pytest

from onnxgate.core.files import sha256_of
from onnxgate.core.findings import Place
from onnxgate.project.config.project import MergedSettings, SelectedModel
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization, MeasuredTolerance
from onnxgate.project.lock.update import UnlockableError, lock_models

RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
EXTERNAL = """
<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
<float[2] w = ["location": "w.bin", "offset": "0", "length": "8"]> { y = Add(x, w) }
"""
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"
TOLERANCE = {"y": MeasuredTolerance(noise=1e-7, bound=1e-6)}


def model(folder: Path, text: str = RELU, name: str = "m.onnx") -> SelectedModel:
    """Write a model given as ONNX text."""
    (folder / name).write_bytes(onnx.parser.parse_model(text).SerializeToString(deterministic=True))
    return SelectedModel(name, folder / name, MergedSettings(), Place(name))


def lock(selected: SelectedModel, old: LockedModel | None = None, **measured: MeasuredTolerance) -> LockedModel:
    """Return the entry of one model."""
    locked = {selected.path: old} if old is not None else {}
    return lock_models([selected], locked, {selected.path: measured} if measured else {})[selected.path]


def refusal(selected: SelectedModel, old: LockedModel | None = None) -> str:
    """Return the reason why a model cannot be locked."""
    with pytest.raises(UnlockableError) as caught:
        lock(selected, old)
    (problem,) = caught.value.problems
    return problem


def test_tolerance_stays_with_its_content(tmp_path: Path) -> None:
    """A measured tolerance is kept as long as the model's bytes do not change."""
    first = msgspec.structs.replace(lock(model(tmp_path)), tolerance=TOLERANCE)
    newer = MeasuredTolerance(noise=2e-7, bound=2e-6)

    assert lock(model(tmp_path), first).tolerance == TOLERANCE
    assert lock(model(tmp_path), first, y=newer).tolerance == {"y": newer}
    assert lock(model(tmp_path, RELU.replace("17", "18")), first).tolerance == {}


def test_figures_of_a_quantized_model_stay(tmp_path: Path) -> None:
    """Quantization figures belong to the path: a requantized model is compared with them until new ones exist."""
    kept = {
        "y": MeasuredQuantization(sqnr_db=36.0, cosine=0.99, top1=1.0, source="f.onnx", runtime="onnxruntime 1.31.1")
    }
    first = msgspec.structs.replace(lock(model(tmp_path)), quantization=kept)

    assert lock(model(tmp_path), first).quantization == kept
    assert lock(model(tmp_path, RELU.replace("17", "18")), first).quantization == kept


def test_pointer_to_the_locked_content(tmp_path: Path) -> None:
    """The entry of a pointer to the locked content is unchanged, with its measured values."""
    selected = model(tmp_path)
    old = msgspec.structs.replace(lock(selected), tolerance=TOLERANCE)
    selected.absolute.write_text(POINTER.format(old.sha256, old.size_bytes))

    assert lock(selected, old) == old


@pytest.mark.parametrize("known", [False, True])
def test_pointer_to_other_content(tmp_path: Path, known: bool) -> None:
    """Content that is not fetched cannot be locked; the error names the command that fetches it."""
    selected = model(tmp_path)
    old = lock(selected) if known else None
    selected.absolute.write_text(POINTER.format("ab" * 32, 3))

    assert refusal(selected, old) == (
        '`m.onnx`: is a Git LFS pointer (content not fetched); run `git lfs pull --include "m.onnx"`'
    )


def test_pointer_outside_of_git(tmp_path: Path) -> None:
    """Without a repository, the command has the model's path as in all other messages."""
    (tmp_path / "models").mkdir()
    selected = model(tmp_path, name="models/m.onnx")
    selected.absolute.write_text(POINTER.format("ab" * 32, 3))

    assert 'run `git lfs pull --include "models/m.onnx"`' in refusal(selected)


def test_pointer_of_data(tmp_path: Path) -> None:
    """A pointer to external data contains everything that the lock records about it."""
    selected = model(tmp_path, EXTERNAL)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    whole = lock(selected)
    (tmp_path / "w.bin").write_text(POINTER.format(sha256_of(tmp_path / "w.bin"), 8))

    assert lock(selected) == whole


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "`m.onnx`: is not a model: an empty file"),
        (b"<!DOCTYPE html><html></html>", "`m.onnx`: is not a model: an HTML page"),
        (b"\x08\x08:\x7f", "`m.onnx`: is a truncated model (it has 4 bytes, but at least 131 are required)"),
        (None, "`m.onnx`: does not exist; restore the file, or remove it from the config and from git"),
    ],
)
def test_no_model(tmp_path: Path, content: bytes | None, expected: str) -> None:
    """A file that is not a valid model cannot be locked."""
    selected = model(tmp_path)
    if content is None:
        selected.absolute.unlink()
        selected.absolute.symlink_to("nowhere")
    else:
        selected.absolute.write_bytes(content)

    assert refusal(selected) == expected


def test_missing_data(tmp_path: Path) -> None:
    """A model cannot be locked without its external data."""

    assert refusal(model(tmp_path, EXTERNAL)) == (
        "`m.onnx`: its external data `w.bin` is missing; commit `w.bin`, or export with `external_data=False`"
    )


@pytest.mark.parametrize("location", ["w.bin", "../w.bin"])
def test_missing_data_of_an_unused_weight(tmp_path: Path, location: str) -> None:
    """The lock lists no data file that is missing and that ONNX Runtime does not read; `check` gives a warning."""
    text = EXTERNAL.replace("Add(x, w)", "Relu(x)").replace("w.bin", location)

    assert lock(model(tmp_path, text)).external == ()


def test_data_of_an_unused_weight_that_was_locked(tmp_path: Path) -> None:
    """A file that is missing since it was locked stays in the entry, until the model changes."""
    text = EXTERNAL.replace("Add(x, w)", "Relu(x)")
    selected = model(tmp_path, text)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    first = lock(selected)
    (tmp_path / "w.bin").unlink()

    assert [file.location for file in first.external] == ["w.bin"]
    assert lock(selected, first) == first
    assert lock(model(tmp_path, text.replace("17", "18")), first).external == ()


def test_missing_data_of_used_and_unused_weights(tmp_path: Path) -> None:
    """One weight that a node uses is enough to require the file."""
    unused = '<float[2] v = ["location": "w.bin"], float[2] w'

    assert "external data `w.bin` is missing" in refusal(model(tmp_path, EXTERNAL.replace("<float[2] w", unused)))


def test_data_elsewhere(tmp_path: Path) -> None:
    """The error for external data outside of the folder suggests storing it in the model."""
    actual = refusal(model(tmp_path, EXTERNAL.replace("w.bin", "../w.bin"), "a b.onnx"))

    assert actual == (
        "`a b.onnx`: its external data `../w.bin` cannot be read: it is outside the model's folder; "
        'run `onnxgate fix "a b.onnx"` to store the data in the model'
    )


def test_all_that_cannot_be_locked(tmp_path: Path) -> None:
    """All models that cannot be locked are reported at once."""
    good, one, other = (model(tmp_path, name=name) for name in ("good.onnx", "one.onnx", "other.onnx"))
    one.absolute.write_bytes(b"")
    other.absolute.write_bytes(b"")

    with pytest.raises(UnlockableError) as caught:
        lock_models([good, one, other], {}, {})

    assert caught.value.message == "2 models cannot be locked, so the lock was not written"
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["`one.onnx`", "`other.onnx`"]
