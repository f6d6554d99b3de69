"""Measure the search for the first differing node in transformers of several hundred nodes with one wrong weight.

    python bench/first_difference.py PYTHON [LAYERS ...]

PYTHON is an interpreter with ONNX Runtime, which runs the correct and the wrong model. Only the search is timed; the
worker is started beforehand.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from onnxgate.core.jobs import InputCase, Observation, Probe, Run
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.stages.parity.first_difference import SearchSide, search_origin

WIDTH, HEADS, TIME = 128, 4, 64
LAYER = """
  q{i} = MatMul(h{i}, wq{i})
  k{i} = MatMul(h{i}, wk{i})
  v{i} = MatMul(h{i}, wv{i})
  qr{i} = Reshape(q{i}, split)
  kr{i} = Reshape(k{i}, split)
  vr{i} = Reshape(v{i}, split)
  qt{i} = Transpose<perm = [0, 2, 1, 3]>(qr{i})
  kt{i} = Transpose<perm = [0, 2, 3, 1]>(kr{i})
  vt{i} = Transpose<perm = [0, 2, 1, 3]>(vr{i})
  s{i} = MatMul(qt{i}, kt{i})
  sc{i} = Div(s{i}, root)
  p{i} = Softmax<axis = -1>(sc{i})
  m{i} = MatMul(p{i}, vt{i})
  mt{i} = Transpose<perm = [0, 2, 1, 3]>(m{i})
  mr{i} = Reshape(mt{i}, join)
  o{i} = MatMul(mr{i}, wo{i})
  r{i} = Add(h{i}, o{i})
  n{i} = LayerNormalization(r{i}, ones)
  f{i} = MatMul(n{i}, wf{i})
  g{i} = Relu(f{i})
  e{i} = MatMul(g{i}, we{i})
  a{i} = Add(n{i}, e{i})
  h{j} = LayerNormalization(a{i}, ones)
"""
SHAPES = {"wq": 1, "wk": 1, "wv": 1, "wo": 1, "wf": 4, "we": 4}


def transformer(path: Path, layers: int, wrong: str = "") -> onnx.ModelProto:
    """A post-norm encoder; the weight `wrong` is 1 % too large."""
    body = "".join(LAYER.format(i=index, j=index + 1) for index in range(layers))
    head = f'<ir_version: 8, opset_import: ["" : 17]> g (float[N, {TIME}, {WIDTH}] h0) => (float[N, {TIME}, {WIDTH}] '
    model = parser.parse_model(f"{head}h{layers}) {{{body}}}")
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "split": np.array([0, 0, HEADS, WIDTH // HEADS]),
        "join": np.array([0, 0, WIDTH]),
        "root": np.float32(np.sqrt(WIDTH / HEADS)),
        "ones": np.ones(WIDTH, np.float32),
    }
    for index in range(layers):
        for kind, factor in SHAPES.items():
            shape = (WIDTH * factor, WIDTH) if kind == "we" else (WIDTH, WIDTH * factor)
            arrays[f"{kind}{index}"] = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
    if wrong:
        arrays[wrong] = arrays[wrong] * np.float32(1.01)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    path.parent.mkdir(parents=True)
    onnx.save(model, str(path))
    return model


def timed(host: WorkerPool, spec: WorkerSpec, folder: Path, layers: int) -> str:
    """Search once; return a row with the number of nodes, the seconds, and whether the correct node was named."""
    wrong = f"wf{layers // 2}"
    right_path, wrong_path = folder / "right" / "m.onnx", folder / "wrong" / "m.onnx"
    right, spoiled = transformer(right_path, layers), transformer(wrong_path, layers, wrong)
    np.save(folder / "h0.npy", np.random.default_rng(1).standard_normal((2, TIME, WIDTH)).astype(np.float32))
    case = InputCase(name="one", origin="generated", inputs={"h0": str(folder / "h0.npy")})

    def run(model: Path, case: InputCase) -> Observation:
        output = tempfile.mkdtemp(dir=folder)
        job = Run(model=str(model), cases=(case,), output=output, optimization="disabled", again=False)
        return host.submit(spec, job).result()

    candidate = SearchSide(wrong_path, spoiled, case, run, folder / "candidate")
    reference = SearchSide(right_path, right, case, run, folder / "reference")
    began = time.perf_counter()
    first = search_origin(candidate, reference.values, None, [f"h{layers}"], exact=True)
    took = time.perf_counter() - began
    named = "nothing" if first is None else helper.printable_node(spoiled.graph.node[first.node])
    return f"{len(right.graph.node):5} nodes  {took:6.3f} s  named: {named}"


def main() -> None:
    """Measure each size and print one row for it."""
    interpreter, sizes = Path(sys.argv[1]), [int(each) for each in sys.argv[2:]] or [4, 12, 24]
    with tempfile.TemporaryDirectory() as folder, WorkerPool(Environments(Path(folder), offline=True), 1) as host:
        worker_spec = WorkerSpec("onnxruntime", "onnxruntime", interpreter=interpreter)
        host.submit(worker_spec, Probe()).result()
        for layers in sizes:
            print(timed(host, worker_spec, Path(folder) / str(layers), layers))


if __name__ == "__main__":
    main()
