"""Provoke errors of the onnx package: checker, shape inference, version converter, helpers, parsing."""

from __future__ import annotations

from pathlib import Path

from tools.harvest_texts import snippets
from tools.harvest_texts.environments import environment

OPENING = """
import onnx
from onnx import TensorProto, checker, helper, shape_inference

def value(name, kind=TensorProto.FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)

def model(nodes, inputs=None, outputs=None, weights=(), opset=12, ir=7, **more):
    graph = helper.make_graph(nodes, 'g', inputs or [value('x')], outputs or [value('y')], list(weights))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid('', opset)], **more)
    made.ir_version = ir
    return made

def node(kind, inputs='x', outputs='y', **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), name='n0', **attributes)

def external(location):
    tensor = TensorProto(name='w', data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key='location', value=location)
    open('e.onnx', 'wb').write(model([node('Add', 'x w')], weights=[tensor]).SerializeToString())
"""
GRID = "value('x', shape=(1, 1, 2, 2)), value('g', shape=(1, 2, 2, 2))"
ONNX = (
    ("checker-unknown-operator", "operator-unknown", "checker.check_model(model([node('NotAnOp')]))"),
    ("checker-custom-domain", "domain-not-imported", "checker.check_model(model([node('Foo', domain='my.domain')]))"),
    ("checker-deprecated", "operator-deprecated", "checker.check_model(model([node('Upsample', 'x x')], opset=10))"),
    (
        "checker-ssa",
        "checker-name-duplicated",
        "checker.check_model(model([node('Relu'), node('Abs')]))",
    ),
    ("checker-undefined-input", "checker-not-sorted", "checker.check_model(model([node('Add', 'x nope')]))"),
    ("checker-attribute", "attribute-unknown", "checker.check_model(model([node('Abs', foo=1)]))"),
    ("checker-required", "attribute-missing", "checker.check_model(model([node('Cast')]))"),
    ("checker-attribute-type", "attribute-type-wrong", "checker.check_model(model([node('Cast', to=1.5)]))"),
    ("checker-arity", "arity-wrong", "checker.check_model(model([node('Add')]))"),
    ("checker-ir", "checker-ir-too-new", "checker.check_model(model([node('Relu')], ir=99))"),
    (
        "checker-opset-missing",
        "checker-opset-missing",
        "made = model([node('Relu')])\nmade.ClearField('opset_import')\nchecker.check_model(made)",
    ),
    (
        "checker-ir-missing",
        "checker-field-missing",
        "made = model([node('Relu')])\nmade.ClearField('ir_version')\nchecker.check_model(made)",
    ),
    (
        "checker-graph-name",
        "checker-field-missing",
        "made = model([node('Relu')])\nmade.graph.name = ''\nchecker.check_model(made)",
    ),
    (
        "checker-tensor-empty",
        "checker-tensor-wrong",
        "made = model([node('Add', 'x w')], weights=[TensorProto(name='w', data_type=1, dims=[2])])\n"
        "checker.check_model(made)",
    ),
    ("checker-external-missing", "external-data-missing", "external('nope.bin')\nchecker.check_model('e.onnx')"),
    (
        "checker-external-outside",
        "external-data-outside",
        "external('../outside.bin')\nchecker.check_model('e.onnx')",
    ),
    (
        "checker-external-absolute",
        "external-data-absolute",
        "external('/nowhere/w.bin')\nchecker.check_model('e.onnx')",
    ),
    ("load-external-missing", "external-data-missing", "external('nope.bin')\nonnx.load('e.onnx')"),
    (
        "inference-type",
        "output-type-wrong",
        "shape_inference.infer_shapes(model([node('Relu')], outputs=[value('y', 7)]), True, True)",
    ),
    (
        "inference-shape",
        "shape-inference-failed",
        "shape_inference.infer_shapes(model([node('Relu')], outputs=[value('y', 1, (3,))]), True, True)",
    ),
    (
        "inference-matmul",
        "shape-inference-failed",
        "checker.check_model(model([node('MatMul', 'x b')], [value('x', 1, (2, 3)), value('b', 1, (2, 3))]), True)",
    ),
    (
        "inference-types-differ",
        "types-differ",
        "checker.check_model(model([node('Add', 'x b')], [value('x'), value('b', 7)]), True)",
    ),
    (
        "converter-adapter",
        "converter-adapter-missing",
        f"from onnx import version_converter\nmade = model([node('GridSample', 'x g')], [{GRID}],"
        " [value('y', shape=(1, 1, 2, 2))], opset=16, ir=8)\nversion_converter.convert_version(made, 15)",
    ),
    (
        "converter-identity",
        "converter-adapter-missing",
        "from onnx import version_converter\nmade = model([node('Identity')], opset=16, ir=8)\n"
        "version_converter.convert_version(made, 13)\n",
    ),
    (
        "converter-operator",
        "converter-operator-unknown",
        "from onnx import version_converter\nversion_converter.convert_version(model([node('NotAnOp')]), 13)",
    ),
    ("helper-size", "helper-size-wrong", "helper.make_tensor('w', 1, [4], [1.0, 2.0, 3.0])"),
    (
        "parse-lfs",
        "not-a-model",
        "open('p.onnx', 'w').write('version https://git-lfs.github.com/spec/v1\\n')\nonnx.load('p.onnx')",
    ),
    ("parse-garbage", "not-a-model", "onnx.load_model_from_string(b'\\xff' * 64)"),
    ("parse-empty", "checker-field-missing", "open('p.onnx', 'w').close()\nchecker.check_model(onnx.load('p.onnx'))"),
    ("no-file", "file-missing", "onnx.load('nope.onnx')"),
    ("mapping", "onnx-name-removed", "print(onnx.mapping.TENSOR_TYPE_TO_NP_TYPE)"),
    ("bfloat16", "onnx-name-removed", "from onnx.helper import float32_to_bfloat16"),
    ("numpy-alias", "numpy-alias-removed", "import numpy\nnumpy.bool\nnumpy.object"),
)
REFERENCE = (
    (
        "reference-unknown",
        "reference-operator-unknown",
        "from onnx.reference import ReferenceEvaluator\nReferenceEvaluator(model([node('OpA', domain='my.dom')]))",
    ),
    (
        "reference-default-domain",
        "reference-operator-unknown",
        "from onnx.reference import ReferenceEvaluator\nReferenceEvaluator(model([node('OpA')]))",
    ),
    (
        "reference-version",
        "reference-version-missing",
        "from onnx.reference import ReferenceEvaluator\n"
        "ReferenceEvaluator(model([node('DequantizeLinear', 'x x')], opset=18, ir=8))",
    ),
    (
        "reference-input",
        "reference-input-missing",
        "from onnx.reference import ReferenceEvaluator\nReferenceEvaluator(model([node('Relu')])).run(None, {})",
    ),
)
PYTHON = {"1.11.0": "3.9", "1.12.0": "3.9", "1.14.1": "3.11"}
NUMPY = {"1.11.0": "numpy==1.23.5", "1.12.0": "numpy==1.26.4"}
PROTOBUF = {"1.11.0": "protobuf==3.20.3", "1.12.0": "protobuf==3.20.1"}


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case on one release."""
    requirements = [f"onnx=={release}", NUMPY.get(release, "numpy<2.1"), PROTOBUF.get(release, "protobuf")]
    requirements += ["typing_extensions", "ml_dtypes"]
    python = environment(f"onnx-{release}", PYTHON.get(release, "3.11"), *requirements, deps=True)
    minor = int(release.split(".")[1])
    cases = ONNX if minor < 13 else (*ONNX, *REFERENCE)
    if minor < 16:  # Source: only `KeyError: 'x'`, which cannot be identified
        cases = tuple(case for case in cases if case[0] != "reference-input")
    return snippets.run(python, cases, folder, OPENING)


def expected(release: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case.

    Releases of onnx before 1.13 report any path outside the folder as missing.
    """
    found = snippets.expected((*ONNX, *REFERENCE))
    if int(release.split(".")[1]) < 13:
        found |= dict.fromkeys(("checker-external-absolute", "checker-external-outside"), "external-data-missing")
    return found
