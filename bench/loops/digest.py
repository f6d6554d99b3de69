"""Compute the SHA-256 of each model in a folder with Python: `python digest.py FOLDER`."""

import hashlib
import sys
from pathlib import Path

for path in sorted(Path(sys.argv[1]).iterdir()):
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    print(path.name, flush=True)
