"""Child processes of the static stages check models without initializing `onnx` and without numpy."""

from __future__ import annotations

import subprocess
import sys

DEFER = "import sys; from onnxgate.model.onnx_package import defer_initialization; defer_initialization()\n"


def run(code: str) -> list[str]:
    """Run code in a new interpreter and return the lines that it prints."""
    return subprocess.run(
        [sys.executable, "-c", DEFER + code], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_a_model_is_checked_without_numpy() -> None:
    """The parser, checker, schemas and shape inference need only protobuf and onnx's native code."""
    code = """
from onnx import ModelProto, TensorProto, checker, defs, parser, shape_inference
model = parser.parse_model('<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Relu(x) }')
checker.check_model(model)
inferred = shape_inference.infer_shapes(ModelProto.FromString(model.SerializeToString()), strict_mode=True)
print(type(inferred).__name__, inferred.graph.node[0].op_type, TensorProto.FLOAT, defs.has("Relu"))
print(sorted({"numpy", "onnx.helper"} & set(sys.modules)))
"""

    assert run(code) == ["ModelProto Relu 1 True", "[]"]


def test_each_name_is_that_of_the_initialized_package() -> None:
    """Code finds the same names as in an initialized package."""
    code = """
import onnx
early = {name: getattr(onnx, name) for name in ("ModelProto", "IR_VERSION", "checker", "helper")}
print(onnx.load.__name__, type(onnx).__name__)
print([name for name, value in early.items() if vars(onnx)[name] is not value])
"""

    assert run(code) == ["load_model module", "[]"]


def test_a_name_that_does_not_exist_is_an_error() -> None:
    """The deferred package has no names that onnx does not have."""
    code = "import onnx\nprint(hasattr(onnx, 'nothing'), hasattr(onnx, '_nothing'), onnx.__version__ != '')"

    assert run(code) == ["False False True"]


def test_a_package_that_is_imported_stays_as_it_is() -> None:
    """An onnx package that is already imported is not replaced."""
    code = "import onnx; before = onnx\ndefer_initialization()\nprint(sys.modules['onnx'] is before)"

    assert run(f"del sys.modules['onnx']\n{code}") == ["True"]
