"""Run Polygraphy's `check lint` on each model in a folder, through its own entry point: `python lint.py FOLDER`."""

import sys
from pathlib import Path

from polygraphy.tools import main  # type: ignore[import-not-found]

status = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    status = main(["check", "lint", "--silent", str(path)]) or status
    print(path.name, flush=True)
sys.exit(status)
