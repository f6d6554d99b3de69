"""Detection of the real type of a file with the extension .onnx."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import onnx
import pytest

from onnxgate.model.reading.file_format import LfsPointer, detect_other_type, read_pointer
from tests.harness.models import parse, write

OID = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 12345\n"


def archive(*names: str) -> bytes:
    """Return a zip archive of empty files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in names:
            file.writestr(name, "")
    return out.getvalue()


def tar() -> bytes:
    """Return a tar archive with one folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        file.addfile(tarfile.TarInfo("models"))
    return out.getvalue()


def safetensors() -> bytes:
    """Return a safetensors file with one tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


KINDS = {
    b"": "an empty file",
    bytes(5000): "a file that contains only null bytes",
    POINTER.encode(): "a Git LFS pointer",
    POINTER.replace("oid sha256:", "oid ").encode(): "a corrupted Git LFS pointer",
    b"<!DOCTYPE html><html></html>": "an HTML page",
    b"\n\n  <HTML><body>404</body>": "an HTML page",
    b"<?xml version='1.0'?><net name='m' version='11'>": "an OpenVINO model (.xml)",
    b"<?xml version='1.0'?><svg/>": "an XML document",
    b'{"error": "not found"}': "a JSON document",
    b"Not Found": "plain text",
    "Größe".encode(): "plain text",
    "Not Found".encode("utf-16"): "plain text",
    b"<<<<<<< HEAD\nversion https": "an unresolved merge conflict",
    b"outs:\n- md5: a\n  path: model.onnx\n": "a DVC file",
    archive("a.txt"): "a zip archive",
    archive("m/data.pkl", "m/data/0"): "a PyTorch checkpoint (a zip archive)",
    archive("a/model.onnx"): "a zip archive that contains `a/model.onnx`",
    archive("a.txt")[:40]: "a corrupted zip archive",
    gzip.compress(b"x"): "gzip-compressed data",
    tar(): "a tar archive",
    pickle.dumps({"a": [1.0] * 9}): "a Python pickle (PyTorch and scikit-learn write these)",
    safetensors(): "a safetensors file",
    b"\x89HDF\r\n\x1a\n" + bytes(30): "an HDF5 file (Keras writes these)",
    b"\x1c\x00\x00\x00TFL3" + bytes(30): "a TensorFlow Lite model",
    b"\x18\x00\x00\x00ORTM" + bytes(30): "a model in the ORT format of ONNX Runtime (.ort)",
    b"GGUF\x03" + bytes(30): "a GGUF model",
    b"\xff\x00\xff\x00" * 9: "binary data of an unknown type",
}


@pytest.mark.parametrize("content", KINDS, ids=KINDS.values())
def test_kinds(tmp_path: Path, content: bytes) -> None:
    """Each file type that can be found in place of a model has a description."""
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    assert detect_other_type(path) == KINDS[content]


def test_no_file(tmp_path: Path) -> None:
    """A folder, a pipe and a missing file are distinguished without being opened."""
    os.mkfifo(tmp_path / "pipe")

    actual = [detect_other_type(tmp_path / name) for name in ("", "pipe", "absent")]

    assert actual == ["a folder", "not a regular file", "not there"]


def test_model(tmp_path: Path) -> None:
    """A valid protobuf message without a graph is not another file type; the validity check reports it."""
    paths = write(tmp_path / "a.onnx"), write(tmp_path / "b.onnx", onnx.ModelProto(ir_version=8))

    assert [*map(detect_other_type, paths)] == ["", ""]


def test_truncated_anywhere(tmp_path: Path) -> None:
    """A truncated model is described as truncated, or is a valid message without its last fields."""
    content = parse().SerializeToString()
    path = tmp_path / "model.onnx"
    actual = set()
    for size in range(2, len(content)):
        path.write_bytes(content[:size])
        actual.add(detect_other_type(path).partition(" (")[0])

    assert actual == {"", "a truncated model"}


def test_truncation_reports_the_expected_size(tmp_path: Path) -> None:
    """The expected size follows from the lengths in the file."""
    content = parse().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content[:30])

    assert detect_other_type(path) == "a truncated model (it has 30 bytes, but at least 72 are required)"


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (POINTER, LfsPointer(OID, 12345)),
        (POINTER.replace("\n", "\r\n"), LfsPointer(OID, 12345)),
        ("version https://git-lfs.github.com/spec/v1x\n" + POINTER, None),
        (POINTER.replace("size", "bytes"), None),
        (POINTER.replace(OID, OID[:-1]), None),
        (POINTER + " " * 1024, None),
    ],
)
def test_pointer(tmp_path: Path, text: str, pointer: LfsPointer | None) -> None:
    """A valid pointer is small and has the exact first line, an oid and a size."""
    path = tmp_path / "model.onnx"
    path.write_bytes(text.encode())

    assert read_pointer(path) == pointer
