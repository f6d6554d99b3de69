"""Load each model below a folder with one release: `python sessions.py MODELS`. Further arguments are ignored.

The last line is a JSON object with the seconds spent in the runtime. Each model is loaded in a fork of this process, so
that a refused or crashing model does not stop the loop; standard error shows how many there were.
"""

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter()
import onnxruntime as ort  # noqa: E402

spent = {"import": time.perf_counter() - BEGAN, "session creation": 0.0}


def load(path: Path) -> int:
    """Load a model at both optimization levels; return the number of refused sessions."""
    refused = 0
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            ort.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 (each release has its own exception types)
            refused += 1
    return refused


refused = crashed = 0
for path in sorted(Path(sys.argv[1]).rglob("*.onnx")):
    began = time.perf_counter()
    process = os.fork()
    if not process:
        os._exit(load(path))
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    spent["session creation"] += time.perf_counter() - began
    if status < 0:
        crashed += 1
    else:
        refused += status
print(f"{refused} sessions refused, {crashed} models crashed", file=sys.stderr)
print(json.dumps(spent))
