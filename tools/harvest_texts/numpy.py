"""Provoke errors in packages that were compiled against a different release of NumPy."""

from __future__ import annotations

from pathlib import Path

from tools.harvest_texts import snippets
from tools.harvest_texts.environments import environment

CASES = (
    ("abi", "numpy-abi", "import onnxruntime"),
    ("alias", "numpy-alias-removed", "import numpy\nnumpy.bool8"),
    ("alias-old", "numpy-alias-removed", "import numpy\nnumpy.object"),
    ("float-alias", "numpy-alias-removed", "import numpy\nnumpy.float_"),
)
PICKLED = (
    "new-pickle",
    "numpy-pickle-newer",
    "import pickle\npickle.loads(b'cnumpy._core.multiarray\\n_reconstruct\\n.')",
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error texts of a pair of releases: `1.18.1+2.2.6` is ONNX Runtime 1.18.1 with NumPy 2.2.6."""
    runtime, _, numpy = release.partition("+")
    python = environment(f"numpy-{release}", "3.11", f"onnxruntime=={runtime}", f"numpy=={numpy}")
    cases = (PICKLED,) if numpy.startswith("1.") else CASES
    return snippets.run(python, cases, folder)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected((*CASES, PICKLED))
