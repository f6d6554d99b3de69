"""Run the full `onnx.checker` on each model in a folder: `python checker.py FOLDER`."""

import sys
from pathlib import Path

from onnx import checker

for path in sorted(Path(sys.argv[1]).iterdir()):
    checker.check_model(str(path), full_check=True)
    print(path.name, flush=True)
