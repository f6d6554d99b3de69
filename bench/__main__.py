"""`python -m bench`: what onnxgate costs, beside its peers; takes the options of `bench.static`."""

from __future__ import annotations

import sys

from bench import static

sys.exit(static.main())
