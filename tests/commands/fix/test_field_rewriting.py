"""Rewriting some fields of a file; all other bytes are unchanged."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxgate.commands.fix.model_file import Edits, FieldMatch, Span, rewrite_fields, total_size, write_parts
from onnxgate.model.reading.file_format import UnreadableModel, encode_length_prefix, encode_varint
from tests.harness.models import parse
from tests.harness.models import write as write_model

NESTED = (
    "g (float[N, 4] x, bool c) => (float[N, 4] y) { y = If (c) <"
    " then_branch = t () => (float[N, 4] a) { [inner] a = Relu (x) },"
    " else_branch = e () => (float[N, 4] b) { b = Neg (x) }> }"
)


def rewrite(path: Path, edits: Edits) -> bytes:
    """Return the bytes of the rewritten file."""
    target = path.with_suffix(".made")
    parts = rewrite_fields(path, edits)
    write_parts(parts, target)

    assert target.stat().st_size == total_size(parts)
    return target.read_bytes()


def test_no_edits_change_nothing(tmp_path: Path) -> None:
    """Without edits, the result is a single span of the file."""
    path = write_model(tmp_path / "m.onnx", NESTED)

    assert rewrite_fields(path, {}) == (Span(path, 0, path.stat().st_size),)


def test_deep_inside(tmp_path: Path) -> None:
    """A longer text in a nested graph updates the lengths of all enclosing messages."""
    path = write_model(tmp_path / "m.onnx", NESTED)
    wanted = parse(NESTED)
    wanted.graph.node[0].attribute[0].g.node[0].name = "a name that is longer " * 20

    def renamed(actual: FieldMatch) -> list[bytes] | None:
        return actual.replaced([b"a name that is longer " * 20]) if actual.content() == b"inner" else None  # type: ignore[return-value]

    assert onnx.ModelProto.FromString(rewrite(path, {("NodeProto", "name"): renamed})) == wanted


def test_unknown_fields_stay(tmp_path: Path) -> None:
    """Fields that the installed onnx does not know are copied unchanged."""
    unknown = encode_length_prefix(999, 3) + b"new" + encode_varint(1000 << 3) + encode_varint(7)
    path = tmp_path / "m.onnx"
    path.write_bytes(unknown + parse(NESTED).SerializeToString())

    actual = rewrite(path, {("NodeProto", "name"): lambda found: found.replaced([b"x"])})

    assert actual.startswith(unknown)


@settings(max_examples=25)
@given(names=st.lists(st.text(max_size=300), max_size=6), weight=st.binary(max_size=3000))
def test_like_protobuf(names: list[str], weight: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A rewritten file contains the same message that protobuf would write."""
    model = onnx.ModelProto(ir_version=300)
    for name in names:
        model.graph.node.add(name=name, op_type="Relu").attribute.add(name=name).t.raw_data = weight
    path = tmp_path_factory.mktemp("m") / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for node in model.graph.node:
        node.name += "!"
        node.attribute[0].t.raw_data = b"w" + weight

    edits: Edits = {
        ("NodeProto", "name"): lambda found: found.replaced([found.content(), b"!"]),
        ("TensorProto", "raw_data"): lambda found: found.replaced([b"w", found.content()]),
    }
    again = onnx.ModelProto.FromString(rewrite(path, edits))

    for node in again.graph.node:  # protobuf omits empty names, so they are not edited
        node.name = node.name or "!"
    assert again == model


@pytest.mark.parametrize("content", [b"\x3a\xff\xff\x03ab", b"\x3a\x03\x0a\x09ab", b"\x07"])
def test_no_model(content: bytes, tmp_path: Path) -> None:
    """A truncated or invalid message raises `UnreadableModel`."""
    path = tmp_path / "m.onnx"
    path.write_bytes(content)

    with pytest.raises(UnreadableModel):
        rewrite_fields(path, {("NodeProto", "name"): lambda found: found.replaced([b"x"])})


def test_too_deep(tmp_path: Path) -> None:
    """Nesting that protobuf rejects raises `UnreadableModel` instead of exhausting the stack."""
    inner = b""
    for _ in range(120):  # graph > node > attribute > graph
        for number in (6, 5, 1):
            inner = encode_length_prefix(number, len(inner)) + inner
    path = tmp_path / "m.onnx"
    path.write_bytes(encode_length_prefix(7, len(inner)) + inner)

    with pytest.raises(UnreadableModel, match="nested more than 100"):
        rewrite_fields(path, {("NodeProto", "name"): lambda found: found.replaced([b"x"])})


def test_shrinking_source(tmp_path: Path) -> None:
    """A source that is shorter than its span is an error instead of a truncated copy."""
    path = tmp_path / "short"
    path.write_bytes(b"abc")

    with pytest.raises(OSError, match="was truncated"):
        write_parts([Span(path, 0, 10)], tmp_path / "copy")
