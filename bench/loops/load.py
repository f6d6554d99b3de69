"""Run `onnx.load` on each model in a folder, one after the other: `python load.py FOLDER`."""

import sys
from pathlib import Path

import onnx

for path in sorted(Path(sys.argv[1]).iterdir()):
    onnx.load(path)
    print(path.name, flush=True)
