"""External data: location, completeness, and restriction to the model's folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import onnx
import pytest

from onnxgate.model.facts import ExternalFile
from onnxgate.model.reading.external_data import check_external_data, find_spellings, hash_external_files
from onnxgate.model.reading.structure import read_view
from tests.harness.models import make_external, parse, write
from tests.model.reading.test_file_format import OID, POINTER

TEXT = """g (float[N, 4] x) => (float[N, 4] y)
<float[4] scale = {1, 2, 3, 4}, float[4] bias = {1, 2, 3, 4}>
{ t = Mul (x, scale) y = Add (t, bias) }"""


def external_model(location: str = "w.bin", *, with_length: bool = True) -> onnx.ModelProto:
    """Return a model with two external tensors of 16 bytes."""
    model = parse(TEXT)
    make_external(model, location, with_length=with_length)
    return model


def problems(path: Path) -> list[str | None]:
    """Return the problem of each use of external data."""
    return [use.problem for use in check_external_data(read_view(path), path)]


def test_valid_external_data(tmp_path: Path) -> None:
    """A file that ends with the last tensor's last byte is valid, and its hash is a fact of the model."""
    path = write(tmp_path / "model.onnx", external_model())
    (tmp_path / "w.bin").write_bytes(bytes(32))

    files = hash_external_files(read_view(path), path)

    assert (problems(path), files) == (
        [None, None],
        (ExternalFile("w.bin", 32, hashlib.sha256(bytes(32)).hexdigest()),),
    )


@pytest.mark.parametrize("with_length", [True, False])
def test_short(tmp_path: Path, with_length: bool) -> None:
    """A file that ends inside the second tensor is too short for that tensor only, even without a length entry."""
    path = write(tmp_path / "model.onnx", external_model(with_length=with_length))
    (tmp_path / "w.bin").write_bytes(bytes(31))

    uses = check_external_data(read_view(path), path)

    assert [(use.problem, use.detail) for use in uses] == [
        (None, ""),
        ("short", "has 31 bytes, but at least 32 are required"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("length", "12", "wrong-length"),
        ("length", "20", "wrong-length"),
        ("length", "-1", "bad-range"),
        ("offset", "many", "bad-range"),
        ("offset", "99999999999999999999", "short"),
        ("location", "", "no-location"),
        ("length", "0", None),
        ("checksum", "any", None),
        ("prepacked_1", "any", None),
        ("basepath", "any", None),
        ("length", "00", None),
        ("offset", "00", None),
        *(
            (key, value, "bad-range")
            for key in ("offset", "length")
            for value in ("", "0 ", "+0x0", "1.0", "٠", "+", "+-0", "-0x0", "0x", "-1", "\xa00", "0\0", "0\n")
        ),
        ("offset", "0x0", "bad-range"),
        *((key, value, None) for key in ("offset", "length") for value in ("-0", "+0", " 0", "\t+0")),
        *(("length", value, None) for value in ("0x0", "0x10", "0X0010", "+16", " 16")),
        ("length", "0x8", "wrong-length"),
        ("location", "w.bin\0/../../other", None),
        ("location", "\0w.bin", "no-location"),
        ("checksum", "", None),
        ("prepacked_1", "", None),
        ("", "any", None),
        ("location", "./w.bin", None),
        ("location", "sub//../w.bin", None),
        ("location", "w.bin/", "missing"),
        ("location", "w.bin/.", "missing"),
        ("location", "sub/", "not-a-file"),
    ],
)
def test_entries(tmp_path: Path, key: str, value: str, problem: str | None) -> None:
    """Location, offset and length must fit the tensor's shape and type; some runtimes accept unknown keys."""
    model = external_model()
    entries = model.graph.initializer[0].external_data
    for entry in [it for it in entries if it.key == key] or [entries.add(key=key)]:
        entry.value = value
    path = write(tmp_path / "model.onnx", model)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    (tmp_path / "sub").mkdir()

    assert problems(path)[0] == problem


@pytest.mark.parametrize(
    ("key", "first", "second", "problem"),
    [
        ("location", "w.bin", "w.bin", None),
        ("location", "none.bin", "w.bin", None),
        ("location", "w.bin", "none.bin", "missing"),
        ("location", "", "w.bin", "bad-range"),
        ("offset", "99999", "0", None),
        ("offset", "0", "99999", "short"),
        ("offset", "many", "0", "bad-range"),
        ("length", "12", "16", None),
        ("length", "many", "16", "bad-range"),
    ],
)
def test_repeated_entries(tmp_path: Path, key: str, first: str, second: str, problem: str | None) -> None:
    """The second entry of a key replaces the first, but both must be valid."""
    model = external_model()
    entries = model.graph.initializer[0].external_data
    kept = [(entry.key, entry.value) for entry in entries if entry.key != key]
    del entries[:]
    for name, value in [*kept, (key, first), (key, second)]:
        entries.add(key=name, value=value)
    path = write(tmp_path / "model.onnx", model)
    (tmp_path / "w.bin").write_bytes(bytes(64))

    assert problems(path)[0] == problem


def test_missing_and_misplaced(tmp_path: Path) -> None:
    """A missing file, a broken link, a folder, a pipe and a pointer are distinguished."""
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pointer").write_text(POINTER)

    actual = [
        problems(write(tmp_path / "model.onnx", external_model(location)))[0]
        for location in ("absent", "x" * 5000, "broken", "folder", "pipe", "pointer")
    ]

    assert actual == ["missing", "missing", "missing", "not-a-file", "not-a-file", "lfs-pointer"]


def test_facts_describe_the_pointers_content(tmp_path: Path) -> None:
    """If the external data is a pointer, the facts describe the data that it points to."""
    path = write(tmp_path / "model.onnx", external_model())
    (tmp_path / "w.bin").write_text(POINTER)

    files = hash_external_files(read_view(path), path)

    assert (files, check_external_data(read_view(path), path)[0].pointer_sha256) == (
        (ExternalFile("w.bin", 12345, OID),),
        OID,
    )


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("sub/w.bin", None),
        ("./sub/../sub/w.bin", None),
        ("../models/sub/w.bin", None),
        ("../w.bin", "escapes"),
        ("sub/../../w.bin", "escapes"),
        ("/etc/hostname", "escapes"),
        ("C:\\weights.bin", "escapes"),
        ("linked.bin", "escapes"),
        ("linked/w.bin", "escapes"),
        ("w\0.bin", "missing"),
    ],
)
def test_escapes(tmp_path: Path, location: str, problem: str | None) -> None:
    """Only files in the model's folder are read, both by path and after resolving links."""
    models = tmp_path / "models"
    (models / "sub").mkdir(parents=True)
    for file in (models / "sub" / "w.bin", tmp_path / "w.bin"):
        file.write_bytes(bytes(32))
    (models / "linked.bin").symlink_to("../w.bin")
    (models / "linked").symlink_to("..")
    path = write(models / "model.onnx", external_model(location))

    assert problems(path) == [problem, problem]


def test_files_outside_the_folder_are_not_hashed(tmp_path: Path) -> None:
    """A file outside the model's folder is not hashed."""
    (tmp_path / "w.bin").write_bytes(bytes(32))
    path = write(tmp_path / "models" / "model.onnx", external_model("../w.bin"))

    assert hash_external_files(read_view(path), path) == ()


def test_links_from_one_blob_folder_are_valid(tmp_path: Path) -> None:
    """A model and data linked from one folder of blobs are valid, as in a Hugging Face cache."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    write(blobs / "a", external_model())
    (blobs / "b").write_bytes(bytes(32))
    (snapshot / "model.onnx").symlink_to("../../blobs/a")
    (snapshot / "w.bin").symlink_to("../../blobs/b")

    assert problems(snapshot / "model.onnx") == [None, None]


@pytest.mark.parametrize(
    ("entries", "size", "expected"),
    [
        ({"offset": "0", "length": "16"}, 64, set()),
        ({}, 16, set()),
        ({"offset": "48"}, 64, set()),
        ({}, 64, {"longer-file"}),
        ({"length": "0"}, 16, {"zero-length"}),
        ({"offset": "-0", "length": " +16", "any": "any"}, 64, {"negative-zero", "signed", "spaced", "unknown-entry"}),
    ],
)
def test_spellings(entries: dict[str, str], size: int, expected: set[str]) -> None:
    """What only some runtimes accept."""
    tensor = external_model().graph.initializer[0]
    del tensor.external_data[:]
    for key, value in {"location": "w.bin", **entries}.items():
        tensor.external_data.add(key=key, value=value)

    assert find_spellings(tensor, size) == expected
