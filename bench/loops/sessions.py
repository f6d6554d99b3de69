"""Load each model below a folder with one release: `python sessions.py MODELS`; it ignores further arguments.

The last line is a JSON object: seconds spent in the runtime. A model that the release refuses is counted on standard
error and does not stop the loop.
"""

import json
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter()
import onnxruntime as ort  # noqa: E402

spent = {"import": time.perf_counter() - BEGAN, "session": 0.0}
refused = 0
for path in sorted(Path(sys.argv[1]).rglob("*.onnx")):
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        began = time.perf_counter()
        try:
            ort.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 (each release has its own exception types)
            refused += 1
        spent["session"] += time.perf_counter() - began
print(f"{refused} sessions refused", file=sys.stderr)
print(json.dumps(spent))
