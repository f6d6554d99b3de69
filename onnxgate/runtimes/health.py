"""What a newly built environment must do before it is trusted: a tensor goes through its engine and comes back."""

from __future__ import annotations

NEGATES = (
    "08083a340a0d0a017812017922034e65673a001201675a0f0a0178120a0a08080112040a02080362"
    "0f0a0179120a0a08080112040a02080342040a00100d"
)
"""`<ir_version: 8, opset_import: ["": 13]> g (float[3] x) => (float[3] y) { y = Neg(x) }`, as it lies in a file."""
USES = {
    # Source: onnxruntime 1.16.3 beside numpy 2 is imported, with a warning, and falls at the first tensor.
    "onnxruntime": "assert engine.OrtValue.ortvalue_from_numpy(numpy.ones(3)).numpy().sum() == 3",
    "openvino": ("core = engine.Core()\nassert core.compile_model(core.read_model(model), 'CPU')(ones)[0].sum() == -3"),
    "tract": (
        "import os, tempfile\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = os.path.join(folder, 'model.onnx')\n"
        "    with open(path, 'wb') as file:\n"
        "        file.write(model)\n"
        "    runnable = engine.onnx().load(path).into_model().into_runnable()\n"
        "    assert runnable.run([ones])[0].to_numpy().sum() == -3"
    ),
    "onnx": (
        "from onnx.reference import ReferenceEvaluator\n"
        "evaluator = ReferenceEvaluator(engine.load_model_from_string(model))\n"
        "assert evaluator.run(None, {'x': ones})[0].sum() == -3"
    ),
    "opencv-python-headless": (
        "net = engine.dnn.readNetFromONNX(numpy.frombuffer(model, numpy.uint8))\n"
        "net.setInput(ones, 'x')\n"
        "assert net.forward().sum() == -3"
    ),
}
"""Statements by engine; they see the module `engine`, `numpy`, `model` (the bytes of `NEGATES`) and `ones`."""
# Run without `-B`, so that what an engine needs is compiled once, here.
SCRIPT = """
import importlib, json, sys
from importlib import metadata
import numpy
engine = importlib.import_module(sys.argv[1])
seen = {"engine": engine, "numpy": numpy, "model": bytes.fromhex(sys.argv[3]), "ones": numpy.ones(3, numpy.float32)}
exec(sys.argv[2], seen)
print(json.dumps({name: metadata.version(name) for name in sys.argv[4:]}))
"""


def arguments(module: str, engine: str, packages: tuple[str, ...]) -> list[str]:
    """What an interpreter is given to try an engine; it prints the versions of the packages as JSON."""
    return ["-I", "-c", SCRIPT, module, USES.get(engine, ""), NEGATES, *packages]
