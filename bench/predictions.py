"""Measure the time of predictions for small models on 16 releases, and its growth with the number of models.

    python bench/predictions.py [COUNT ...]

The models are ONNX's own operator tests as the installed onnx makes them, repeated under other names until there are
enough. Each count is measured three times, in turn, each time in a new process.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

COUNTS = (400, 1000, 2000, 4000)
ROUNDS = 3
RELEASES = 16
CHILD = """
import sys, time
from collections import Counter
from pathlib import Path
begin = time.perf_counter()
from onnxgate.model.reading.structure import read_view
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation, list_known_releases
names = list_known_releases()
chosen = [names[round(i * (len(names) - 1) / (RELEASES - 1))] for i in range(RELEASES)]
releases = [(get_implementation(name), get_limits(name)) for name in chosen]
verdicts = Counter()
for path in sorted(Path(sys.argv[1]).iterdir())[: int(sys.argv[2])]:
    typed = infer_model_types(read_view(path))
    verdicts.update(predict(typed, each, known).verdict for each, known in releases)
print(time.perf_counter() - begin, sum(verdicts.values()), *sorted(verdicts.items()))
"""


def write_models(folder: Path, count: int) -> None:
    """Write that many models with different graph names."""
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    models = [case.model for case in collect_testcases(None) if case.model is not None]
    for index in range(count):
        model = models[index % len(models)]
        model.graph.name = f"model {index}"
        (folder / f"{index:05}.onnx").write_bytes(model.SerializeToString())


def seconds(folder: Path, count: int) -> tuple[float, str]:
    """Return the time of one process including imports, and its output."""
    script = f"RELEASES = {RELEASES}\n{CHILD}"
    words = [sys.executable, "-c", script, str(folder), str(count)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    taken, _, found = done.stdout.strip().partition(" ")
    return float(taken), found


def main() -> None:
    """Print one line per count."""
    counts = [int(word) for word in sys.argv[1:]] or list(COUNTS)
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder), max(counts))
        runs = [{count: seconds(Path(folder), count) for count in counts} for _ in range(ROUNDS)]
    first = statistics.median(run[counts[0]][0] for run in runs)
    for count in counts:
        taken = statistics.median(run[count][0] for run in runs)
        actual = runs[0][count][1]
        print(f"{count} models on {RELEASES} releases: {taken:.2f} s, {taken / first:.1f} times the first ({actual})")


if __name__ == "__main__":
    main()
