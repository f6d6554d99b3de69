"""Harvest error texts, or score the classification of harvested texts.

    python -m tools.harvest_texts EMITTER RELEASE…   # provoke failures in releases of EMITTER
    python -m tools.harvest_texts score [FILE…]      # classify the texts in the corpus or in these files

Emitters: onnxruntime, onnx, torch_onnx, pip, uv, numpy, protobuf, openvino, tract, opencv. Texts are written to
`fixtures/texts` or to `--out FOLDER`. Python interpreters are found by uv.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from pathlib import Path

from tools.harvest_texts import corpus, score


def main() -> int:
    """Harvest or score."""
    parser = argparse.ArgumentParser(prog="python -m tools.harvest_texts", description=__doc__)
    parser.add_argument("emitter")
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--out", type=Path, default=corpus.FOLDER)
    given = parser.parse_args()
    if given.emitter == "score":
        files = [Path(argument) for argument in given.arguments] or sorted(corpus.FOLDER.glob("*/*.json"))
        return score.report(files)
    module = importlib.import_module(f"tools.harvest_texts.{given.emitter}")
    for release in given.arguments:
        with tempfile.TemporaryDirectory() as folder:
            texts = module.harvest(release, Path(folder))
            expected = module.expected(release)
            named = {case: (expected[case], corpus.normal(text, Path(folder))) for case, text in texts.items()}
        path = corpus.write(given.emitter, release, named, given.out)
        print(f"{path}: {len(named)} texts; missing cases: {sorted(expected.keys() - named.keys())}")
    return 0


raise SystemExit(main())
