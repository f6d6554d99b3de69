"""Each fix alone: its changes, its description and the cases in which it does not apply."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.commands.fix.declared_types import MISSING_TYPES, OUTPUT_SHAPES
from onnxgate.commands.fix.definition import Change, NoFix
from onnxgate.commands.fix.external_data import EXTERNAL_DATA
from onnxgate.commands.fix.fixes import FIXES, LEAKED_PATHS, PASSTHROUGH
from onnxgate.commands.fix.model_file import Span
from onnxgate.commands.fix.versions import IR_VERSION, OPSET
from onnxgate.model.reading.view import ModelView
from onnxgate.model.validity import find_leaked_paths
from onnxgate.rules import by_id
from tests.commands.fix.single_model import changed, fix_request, refused
from tests.harness.models import make_external, parse, write

WEIGHTED = (
    "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}, float[4] b = {0.5, 0.5, 0.5, 0.5}>"
    " { s = Mul (x, w) y = Add (s, b) }"
)
PASSED = "g (float[N, 4] x, float[N, 4] m) => (float[N, 4] y, float[N, 4] m) { y = Relu (x) }"


def test_rules_are_rules() -> None:
    """Fixes name existing rules, and their names are unique."""
    assert {rule for fix in FIXES for rule in fix.rules} <= by_id.keys()
    assert len({fix.name for fix in FIXES}) == len(FIXES)


# IR version


def test_ir_lowered(tmp_path: Path) -> None:
    """Only the IR version changes; every other byte is the same."""
    path = write(tmp_path / "m.onnx", parse(WEIGHTED, '<ir_version: 13, opset_import: ["" : 18]>\n'))
    before = path.read_bytes()
    proto, change = changed(IR_VERSION, fix_request(path, ir_version=10))

    assert proto.ir_version == 10
    assert (tmp_path / "scratch" / "made.onnx").read_bytes() == before.replace(b"\x08\x0d", b"\x08\x0a", 1)
    assert change.words == ("changes IR version 13 to 10; the model uses features up to IR version 8",)


def test_ir_of_a_large_file_is_not_read(tmp_path: Path) -> None:
    """The weights of a large file are copied as a range of the file."""
    model = parse(WEIGHTED, '<ir_version: 13, opset_import: ["" : 18]>\n')
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros(100_000, np.float32), "w"))
    path = write(tmp_path / "m.onnx", model)
    change = IR_VERSION.propose(fix_request(path, ir_version=10, large_bytes=1000))

    assert isinstance(change, Change)
    assert [type(part) for part in change.parts] == [bytes, Span]


def test_ir_that_is_needed(tmp_path: Path) -> None:
    """The IR version is not lowered below the features that the model uses."""
    path = write(tmp_path / "m.onnx", parse(WEIGHTED, '<ir_version: 13, opset_import: ["" : 21]>\n'))

    assert refused(IR_VERSION, fix_request(path, ir_version=9)) == (
        "the model uses features of IR version 10; the newest allowed version is 9"
    )


def test_ir_is_never_raised(tmp_path: Path) -> None:
    """An IR version within or below the bound is not changed."""
    path = write(tmp_path / "m.onnx", WEIGHTED)

    assert [IR_VERSION.propose(fix_request(path, ir_version=bound)) for bound in (8, 9)] == [None, None]
    assert IR_VERSION.propose(fix_request(path)) is None


# Passthrough


def test_identity(tmp_path: Path) -> None:
    """The input keeps its name; an `Identity` node and a renamed output are added."""
    proto, change = changed(PASSTHROUGH, fix_request(write(tmp_path / "m.onnx", PASSED)))

    assert [value.name for value in proto.graph.input] == ["x", "m"]
    assert [value.name for value in proto.graph.output] == ["y", "m_out"]
    assert change.renamed == {"m": "m_out"}
    assert "`m` becomes `m_out`" in change.unsafe
    onnx.checker.check_model(proto, full_check=True)
    (y, m) = onnx.reference.ReferenceEvaluator(proto).run(
        None, {"x": -np.ones((2, 4), np.float32), "m": np.full((2, 4), 7, np.float32)}
    )
    assert (y.max(), m.min()) == (0, 7)


def test_identity_of_fresh_names(tmp_path: Path) -> None:
    """New names do not collide with names of values and nodes, including those in subgraphs."""
    text = (
        "g (float[4] m, bool m_out_2) => (float[4] m, float[4] m_out) { m_out = If (m_out_2) <"
        " then_branch = t () => (float[4] m_out_3) { [m_identity] m_out_3 = Relu (m) },"
        " else_branch = e () => (float[4] b) { b = Neg (m) }> }"
    )
    proto, _ = changed(PASSTHROUGH, fix_request(write(tmp_path / "m.onnx", text)))

    assert [value.name for value in proto.graph.output] == ["m_out_4", "m_out"]
    assert proto.graph.node[-1].name == "m_identity_2"
    onnx.checker.check_model(proto, full_check=True)


def test_identity_for_each_output(tmp_path: Path) -> None:
    """Each input that is also an output gets its own node, except strings, which every release copies."""
    text = "g (float[4] a, int64[2] b, string[1] s) => (float[4] a, int64[2] b, string[1] s) { }"
    proto, _ = changed(PASSTHROUGH, fix_request(write(tmp_path / "m.onnx", text)))

    assert [(node.input[0], node.output[0]) for node in proto.graph.node] == [("a", "a_out"), ("b", "b_out")]
    assert [value.name for value in proto.graph.output] == ["a_out", "b_out", "s"]


def test_identity_of_a_sequence(tmp_path: Path) -> None:
    """Sequences need the `Identity` of opset 14 or newer."""
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    graph = helper.make_graph([], "g", [sequence], [sequence])

    def of(opset: int) -> Path:
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return write(tmp_path / f"{opset}.onnx", model)

    proto, _ = changed(PASSTHROUGH, fix_request(of(14)))
    assert proto.graph.node[0].op_type == "Identity"
    assert refused(PASSTHROUGH, fix_request(of(13))) == (
        "no `Identity` node can be inserted: opset 13 of `ai.onnx` does not support `Identity` for this type"
    )


# External data


def external(folder: Path, location: str = "w.bin", *, data: bytes | None = None) -> Path:
    """Create a model with external data in its folder."""
    model = parse(WEIGHTED)
    content = make_external(model, location)
    path = write(folder / "m.onnx", model)
    target = folder / location
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if data is None else data)
    return path


def test_data_moved_inside(tmp_path: Path) -> None:
    """The weights are unchanged, and the model references no file."""
    proto, change = changed(EXTERNAL_DATA, fix_request(external(tmp_path)))

    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in proto.graph.initializer}
    assert values == {"w": [1, 2, 3, 4], "b": [0.5] * 4}
    assert not any(tensor.external_data or tensor.data_location for tensor in proto.graph.initializer)
    assert change.unlinked == ("w.bin",)


def test_data_of_the_repository(tmp_path: Path) -> None:
    """A file in another folder is embedded; the original is verified as a copy that runtimes can load."""
    path = external(tmp_path / "models", "../w.bin")
    _, change = changed(EXTERNAL_DATA, fix_request(path, root=tmp_path))

    assert change.stand_in is not None
    assert dict(change.stand_in.data) == {"w.bin": tmp_path / "w.bin"}


@pytest.mark.parametrize("how", ["relative", "absolute", "link"])
def test_data_outside_is_not_read(how: str, tmp_path: Path) -> None:
    """A file outside the repository is not embedded, so that a model cannot leak local files."""
    secret = tmp_path / "secret.bin"
    inside = tmp_path / "repository" / "models"
    location = {"relative": "../../secret.bin", "absolute": str(secret), "link": "link.bin"}[how]
    model = parse(WEIGHTED)
    secret.write_bytes(make_external(model, location))
    path = write(inside / "m.onnx", model)
    if how == "link":
        (inside / "link.bin").symlink_to(secret)
    question = fix_request(path, root=tmp_path / "repository")

    assert refused(EXTERNAL_DATA, question) == f"`{location}` is outside the folder `{tmp_path / 'repository'}`"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0" * 16, "`w.bin` ends before the last byte of `b`"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 32\n",
            "`w.bin` is a Git LFS pointer (content not fetched)",
        ),
    ],
)
def test_data_that_are_not_all_there(data: bytes, reason: str, tmp_path: Path) -> None:
    """Incomplete data and Git LFS pointers are not embedded."""
    assert refused(EXTERNAL_DATA, fix_request(external(tmp_path, data=data))) == reason


def test_data_that_are_missing(tmp_path: Path) -> None:
    """A missing file and a folder are reported."""
    path = external(tmp_path)
    (tmp_path / "w.bin").unlink()
    assert refused(EXTERNAL_DATA, fix_request(path)) == "`w.bin` does not exist"

    (tmp_path / "w.bin").mkdir()
    assert refused(EXTERNAL_DATA, fix_request(path)) == "`w.bin` is not a regular file"


@pytest.mark.parametrize(
    ("key", "value"), [("length", "12"), ("offset", "-4"), ("offset", "x"), ("offset", str(2**63))]
)
def test_data_of_another_range(key: str, value: str, tmp_path: Path) -> None:
    """A range that does not match the tensor is not copied."""
    path = external(tmp_path)
    model = onnx.load(str(path), load_external_data=False)
    next(entry for entry in model.graph.initializer[0].external_data if entry.key == key).value = value
    write(path, model)

    assert "`w`" in refused(EXTERNAL_DATA, fix_request(path))


def test_data_that_are_too_large(tmp_path: Path) -> None:
    """Weights above the 2 GiB limit of a file are rejected without reading them."""
    model = parse(WEIGHTED)
    make_external(model, "w.bin")
    tensor = model.graph.initializer[0]
    tensor.dims[:] = [2**29]
    del tensor.external_data[1:]
    path = write(tmp_path / "m.onnx", model)
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(2**31)

    assert refused(EXTERNAL_DATA, fix_request(path)).startswith("the model would have 2,147,48")


# Missing types


@pytest.mark.parametrize("lacking", ["type", "shape", "elem_type"])
def test_types_filled(lacking: str, tmp_path: Path) -> None:
    """Inferred types are added; the rest of the file is unchanged."""
    model = parse()
    output = model.graph.output[0]
    if lacking == "type":
        output.ClearField("type")
    else:
        output.type.tensor_type.ClearField(lacking)  # type: ignore[arg-type]
    proto, change = changed(MISSING_TYPES, fix_request(write(tmp_path / "m.onnx", model)))

    assert proto == parse()
    assert change.words == ("adds the type of `y`: tensor(float) [N, 4]",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g (float[N, 4] x) => (float[2, 4] y) { y = Sqrt (x) }",
            ("declares the shape of `y` as (N, 4) instead of (2, 4)",),
        ),
        ("g (float[N, 4] x) => (float[4] y) { y = Sqrt (x) }", ("declares the shape of `y` as (N, 4) instead of (4)",)),
        (
            "g (float[3, 4] x) => (float[B, 5] y) { y = Sqrt (x) }",
            ("declares the shape of `y` as (B, 4) instead of (B, 5)",),
        ),
        (
            "g (float[N, 4] x) => (int64 y) { y = NonZero (x) }",
            ("declares the shape of `y` as (2, ?) instead of ()",),
        ),
        (
            "g (float[N, 4] x) => (int64[2, 3] y) { y = NonZero (x) }",
            ("declares the shape of `y` as (2, ?) instead of (2, 3)",),
        ),
        (
            "g (float[N, 4] x) => (int64[2, 3] y, float[2, 4] z) { y = NonZero (x) z = Sqrt (x) }",
            ("declares the shape of `z` as (N, 4) instead of (2, 4)",),
        ),
    ],
    ids=["size of the example", "rank", "fixed size", "scalar", "unknown size", "unknown size of another output"],
)
def test_wrong_declared_shapes_are_corrected(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Wrong sizes are replaced by inferred ones; other bytes and other names stay."""
    proto, change = changed(OUTPUT_SHAPES, fix_request(write(tmp_path / "m.onnx", text)))

    assert change.words == words
    assert "unk" not in str(proto.graph.output)


def test_declared_shapes_that_cannot_be_inferred_stay(tmp_path: Path) -> None:
    """A shape without a known rank is not guessed, and a correct declaration is not changed."""
    unknown = "g (float[N, 4] x, int64[K] s) => (float[2, 3] y) { y = Reshape (x, s) }"
    correct = "g (float[N, 4] x) => (float[N, 4] y) { y = Sqrt (x) }"

    reason = refused(OUTPUT_SHAPES, fix_request(write(tmp_path / "unknown.onnx", unknown)))
    assert reason == "shape inference could not determine the shape of `y`"
    assert OUTPUT_SHAPES.propose(fix_request(write(tmp_path / "correct.onnx", correct))) is None


def test_types_of_inputs_are_not_guessed(tmp_path: Path) -> None:
    """Types of inputs, and types that depend on them, cannot be inferred."""
    model = parse()
    model.graph.input[0].ClearField("type")
    assert MISSING_TYPES.propose(fix_request(write(tmp_path / "m.onnx", model))) is None

    model.graph.output[0].ClearField("type")
    assert refused(MISSING_TYPES, fix_request(write(tmp_path / "m.onnx", model))).startswith(
        "shape inference could not determine the type of `y`"
    )


# Leaked paths


def test_paths_are_made_relative(tmp_path: Path) -> None:
    """Paths become relative to the repository or the package; other paths are reduced to the file name."""
    model = parse()
    root = Path("/home/ada/project")
    node = model.graph.node[0]
    node.doc_string = 'File "/home/ada/project/export/net.py", line 3'
    node.metadata_props.add(key="trace", value='File "/home/ada/venv/lib/python3.11/site-packages/torch/nn.py", line 1')
    model.graph.doc_string = r"C:\Users\ada\train.py"
    model.metadata_props.add(key="/home/ada/key", value="/home/ada/x/y.py and /home/runner/z.py")
    model.graph.initializer.add(name="/home/ada/weight").data_type = 1
    path = write(tmp_path / "m.onnx", model)
    proto, _ = changed(LEAKED_PATHS, fix_request(path, root=root))

    assert proto.graph.node[0].doc_string == 'File "export/net.py", line 3'
    assert proto.graph.node[0].metadata_props[0].value == 'File "torch/nn.py", line 1'
    assert proto.graph.doc_string == "train.py"
    assert proto.metadata_props[0].value == "y.py and /home/runner/z.py"
    assert proto.graph.initializer[0].name == "/home/ada/weight"
    assert find_leaked_paths(ModelView(proto)) == ()


# Opset


def test_opset_converted(tmp_path: Path) -> None:
    """The converted model keeps its metadata, interface and IR version."""
    model = parse(WEIGHTED, '<ir_version: 10, opset_import: ["" : 21]>\n')
    model.graph.node[0].metadata_props.add(key="a", value="b")
    proto, change = changed(OPSET, fix_request(write(tmp_path / "m.onnx", model), opset=18))

    assert (proto.opset_import[0].version, proto.ir_version) == (18, 10)
    assert proto.graph.node[0].metadata_props[0].value == "b"
    assert change.words == ("converts opset 21 of `ai.onnx` to 18 with the onnx version converter",)


def test_opset_is_raised_only_to_a_pin(tmp_path: Path) -> None:
    """An opset is raised only if a newer one is pinned."""
    path = write(tmp_path / "m.onnx", WEIGHTED)

    assert OPSET.propose(fix_request(path, opset=20)) is None
    assert changed(OPSET, fix_request(path, opset=20, pinned=True))[0].opset_import[0].version == 20


def test_opset_that_cannot_be_converted(tmp_path: Path) -> None:
    """A model that the converter does not support, or would damage, is not converted."""
    head = '<ir_version: 8, opset_import: ["" : 18, "my" : 1]>\n'
    relu = write(tmp_path / "relu.onnx")
    text = "g (float[4] x) => (float[4] y) { y = my.f (x) }"
    body = '<domain: "my", opset_import: ["" : 18]> f (a) => (b) { b = Relu (a) }'
    function = parse(f"{text}\n{body}", head)

    no_fix = OPSET.propose(fix_request(relu, opset=13))
    assert isinstance(no_fix, NoFix)
    assert (no_fix.reason, no_fix.hint) == (
        "the onnx version converter cannot convert `Relu` to opset 13",
        "re-export the model at opset 13",
    )
    assert "No Adapter" in no_fix.error
    missing = write(tmp_path / "swish.onnx", "g (float[4] x) => (float[4] y) { y = HardSwish (x) }")
    computed = write(
        tmp_path / "sum.onnx", "g (float[4] x, int64[1] a) => (float[1] y) { z = Softsign (x) y = ReduceSum (z, a) }"
    )
    no_operator, no_constant = (OPSET.propose(fix_request(path, opset=12)) for path in (missing, computed))
    assert isinstance(no_operator, NoFix)
    assert isinstance(no_constant, NoFix)
    assert no_operator.hint == "re-export the model at opset 12, which has no `HardSwish`"
    assert "`ReduceSum`" in no_constant.reason
    assert "`Softsign`" not in no_constant.reason
    unknown = write(tmp_path / "unknown.onnx", parse(head='<ir_version: 8, opset_import: ["" : 99]>\n'))
    assert "does not support opset 99" in refused(OPSET, fix_request(unknown, opset=17))
    assert "local functions" in refused(OPSET, fix_request(write(tmp_path / "f.onnx", function), opset=17))
