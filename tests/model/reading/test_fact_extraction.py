"""Facts extracted from a model file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.reading.fact_extraction import (
    MAX_LISTED,
    NOT_PROVIDED,
    format_change,
    format_source_change,
    read_facts,
    read_model,
)
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import LIGHT_BYTES
from tests.harness.models import HEAD, parse, write
from tests.model.equality.test_model_comparison import BRANCHES, FUNCTION


def facts(tmp_path: Path, model: onnx.ModelProto | str) -> ModelFacts:
    """Return the facts of a model."""
    return read_facts(write(tmp_path / "model.onnx", model), "models/model.onnx")


def test_all_facts(tmp_path: Path) -> None:
    """All facts are extracted and spelled as in reports."""
    model = parse(
        "g (float[batch, 3, 4] x, int64[?] ids) => (float[batch, 3, 4] y) { y = Relu (x) z = com.microsoft.Gelu (x) }",
        '<ir_version: 9, producer_name: "pytorch", producer_version: "2.13.0+cpu",'
        ' opset_import: ["com.microsoft" : 1, "" : 18]>',
    )
    model.metadata_props.add(key="sample_rate", value="16000")
    model.metadata_props.add(key="author", value="")
    content = write(tmp_path / "model.onnx", model).read_bytes()

    assert facts(tmp_path, model) == ModelFacts(
        path="models/model.onnx",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        ir_version=9,
        opsets={"ai.onnx": 18, "com.microsoft": 1},
        producer="pytorch 2.13.0",
        inputs=(
            ValueInfo("x", "tensor(float)", ("batch", 3, 4)),
            ValueInfo("ids", "tensor(int64)", ("?",)),
        ),
        outputs=(ValueInfo("y", "tensor(float)", ("batch", 3, 4)),),
        operators={"Relu": 1, "com.microsoft.Gelu": 1},
        metadata_keys=("author", "sample_rate"),
    )


@pytest.mark.parametrize("ir_version", [3, 8])
def test_initializers_are_not_required_inputs(tmp_path: Path, ir_version: int) -> None:
    """An input with an initializer is not a required input, even if IR version 3 requires it to be listed."""
    model = parse(
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {1}> { y = Add (x, w) }",
        HEAD.replace("8", str(ir_version), 1),
    )

    assert [value.name for value in facts(tmp_path, model).inputs] == ["x"]


@pytest.mark.parametrize(("ir_version", "expected"), [(3, []), (4, ["w"])])
def test_a_default_makes_an_input_optional(tmp_path: Path, ir_version: int, expected: list[str]) -> None:
    """An input with an initializer is optional since IR version 4; in older models it is a constant."""
    model = parse(
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {1}> { y = Add (x, w) }",
        HEAD.replace("8", str(ir_version), 1),
    )

    assert [value.name for value in facts(tmp_path, model).optional_inputs] == expected


def test_local_functions_are_named_as_operators_are(tmp_path: Path) -> None:
    """Local functions are named like operators, so that their calls can be recognized."""
    actual = facts(tmp_path, parse(FUNCTION, ""))

    assert set(actual.functions) <= set(actual.operators)
    assert actual.functions != ()


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Missing external data is listed, and available external data is described."""
    text = 'g (float[2] x) => (float[2] y) <float[2] w = ["location": "w.bin"]> { y = Add (x, w) }'
    missing = facts(tmp_path, text)
    (tmp_path / "w.bin").write_bytes(bytes(8))
    there = facts(tmp_path, text)

    assert [("w.bin",), ()] == [missing.unread, there.unread]
    assert [[], ["w.bin"]] == [[file.location for file in each.external] for each in (missing, there)]


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("float16[N]", "tensor(float16)"),
        ("double[N]", "tensor(double)"),
        ("string[N]", "tensor(string)"),
        ("bool[N]", "tensor(bool)"),
        ("bfloat16[N]", "tensor(bfloat16)"),
        ("float8e4m3fn[N]", "tensor(float8e4m3fn)"),
        ("int4[N]", "tensor(int4)"),
        ("seq(float[N])", "seq(tensor(float))"),
        ("optional(seq(float[N]))", "optional(seq(tensor(float)))"),
        ("sparse_tensor(float[N])", "sparse_tensor(float)"),
    ],
)
def test_types(tmp_path: Path, written: str, spelled: str) -> None:
    """Types are spelled as in ONNX Runtime."""
    model = parse(f"g ({written} x) => ({written} y) {{ y = Identity (x) }}")

    assert facts(tmp_path, model).inputs[0].type == spelled


def test_map_type(tmp_path: Path) -> None:
    """The output of a classifier with a ZipMap has a sequence of maps as its type."""
    model = parse()
    kind = model.graph.output[0].type
    kind.Clear()
    kind.sequence_type.elem_type.map_type.key_type = onnx.TensorProto.INT64
    kind.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT

    assert facts(tmp_path, model).outputs == (ValueInfo("y", "seq(map(int64,tensor(float)))", None),)


def test_shapes(tmp_path: Path) -> None:
    """Unknown rank, scalars, unnamed axes, and -1, which older exporters write for unnamed axes, are recognized."""
    model = parse("g (float a, float[] b, float[?, 4] c, float[2] d) => (float y) { y = Relu (a) }")
    model.graph.input[3].type.tensor_type.shape.dim[0].dim_value = -1

    assert [value.shape for value in facts(tmp_path, model).inputs] == [(), None, ("?", 4), ("?",)]


def test_operators_of_subgraphs_and_functions(tmp_path: Path) -> None:
    """Nodes in branches and in local functions are counted, and so are the calls."""
    counted = facts(tmp_path, BRANCHES).operators, facts(tmp_path, parse(FUNCTION, "")).operators

    assert counted == (
        {"Abs": 1, "If": 1, "Neg": 1, "Relu": 1},
        {"LeakyRelu": 1, "Neg": 1, "local.act": 1},
    )


def test_both_spellings_of_the_default_domain(tmp_path: Path) -> None:
    """If a domain is imported twice, the newer version counts."""
    model = parse(head='<ir_version: 8, opset_import: ["" : 17, "ai.onnx" : 18]>')

    assert facts(tmp_path, model).opsets == {"ai.onnx": 18}


def test_opsets_of_functions(tmp_path: Path) -> None:
    """Opsets of local functions are kept separate; a runtime needs the newest of both."""
    body = "f%s (a) => (b) { b = Neg (a) }"
    functions = "".join(
        f'<domain: "my", opset_import: ["": {version}, "ai.onnx.ml": 3]> {body % version}\n' for version in (22, 17)
    )
    graph = "g (float[N] x) => (float[N] y) { y = my.f17 (x) }\n"
    actual = facts(tmp_path, parse(graph + functions, '<ir_version: 8, opset_import: ["": 18, "my": 1]>'))

    assert actual.opsets == {"ai.onnx": 18, "my": 1}
    assert actual.function_opsets == {"ai.onnx": 22, "ai.onnx.ml": 3}
    assert actual.needed_opsets == {"ai.onnx": 22, "ai.onnx.ml": 3, "my": 1}


def test_unreadable(tmp_path: Path) -> None:
    """A file with a valid top level and an invalid graph is a corrupted model."""
    content = parse().SerializeToString().replace(b"\x0a\x01x", b"\x0a\x7fx")
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(UnreadableModel, match="a corrupted model"):
        read_facts(path, "model.onnx")


def test_a_model_read_without_its_weights_has_the_digest_of_its_file(tmp_path: Path) -> None:
    """The hash includes weights that were not read."""
    weight = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[LIGHT_BYTES], raw_data=bytes(LIGHT_BYTES))
    model = helper.make_model(helper.make_graph([], "g", [], [], [weight]))
    content = model.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    assert hashlib.sha256(content).hexdigest() == read_model(path, "model.onnx", lightly=True).facts.sha256


def test_described_changes() -> None:
    """A change names the previous value before the new value, and says if one of them does not exist."""
    long = tuple(range(MAX_LISTED + 1))

    assert [format_change(*pair) for pair in ((1, 2), (None, 2), (1, None), (long, long[1:]))] == [
        "changed from 1 to 2",
        "was added: 2",
        "was removed: 1",
        f"changed from {MAX_LISTED + 1} to {MAX_LISTED} elements",
    ]
    sources = (("`Relu`", "`Abs`"), ("`Relu`", "`Relu`"), (NOT_PROVIDED, "`Abs`"), ("`Relu`", NOT_PROVIDED))
    assert [format_source_change(*pair) for pair in sources] == [
        "changed from `Relu` to `Abs`",
        "is a different `Relu`",
        "is now provided by `Abs`",
        "is no longer provided (previously `Relu`)",
    ]
