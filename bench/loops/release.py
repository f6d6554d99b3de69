"""Load and run all models in a folder with one release: `python release.py MODELS SAMPLES OUT`.

A user would write a script like this one. Its last line is a JSON object with the seconds spent in the runtime.
"""

import json
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter()
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

spent = {"import": time.perf_counter() - BEGAN, "session creation": 0.0, "run": 0.0}
models, samples, out = (Path(word) for word in sys.argv[1:])
for path in sorted(models.glob("*.onnx")):
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        began = time.perf_counter()
        session = ort.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])
        spent["session creation"] += time.perf_counter() - began
        names = [output.name for output in session.get_outputs()]
        for case in sorted((samples / path.stem).glob("*.npz")):
            feeds = dict(np.load(case))
            began = time.perf_counter()
            values = session.run(names, feeds)
            spent["run"] += time.perf_counter() - began
            folder = out / path.stem / level
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / case.name, **dict(zip(names, values, strict=True)))
print(json.dumps(spent))
