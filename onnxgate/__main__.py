"""`python -m onnxgate` is the same as the command `onnxgate`."""

import os
import sys

# `-m` puts the current folder first, which may be the checked repository and contain a `pathlib.py`.
if sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
    del sys.path[0]

from onnxgate.cli import main

main()
