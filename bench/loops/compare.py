"""Compare the outputs of each release with those of the last: `python compare.py OUT...`, with a folder per release."""

import sys
from pathlib import Path

import numpy as np

*others, reference = (Path(word) for word in sys.argv[1:])
for file in sorted(reference.rglob("*.npz")):
    expected = np.load(file)
    for other in others:
        found = np.load(other / file.relative_to(reference))
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-5)
