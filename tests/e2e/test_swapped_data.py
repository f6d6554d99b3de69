"""External data that another program replaces at a random moment of full checks."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxgate.core.files import remove_path
from onnxgate.core.findings import CHANGED_FILES
from tests.harness.models import parse
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository, wait

pytestmark = pytest.mark.index

CONFIG = 'models = ["models/*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.18,<1.19"\n'
SWAPS = 20
GATHER = "g (float[2, 4] x) => (float[2, 2] y) { y = Gather <axis = 1> (x, indices) }"
VALID, INVALID = (np.array(indices, np.int64).tobytes() for indices in ([0, 3], [0, 9]))
"""Data with which the model runs and passes, and data of which all runtimes reject the second index."""


def save_models(folder: Path) -> list[Path]:
    """Save models with one data file each, and return the data files."""
    for number in range(SWAPS):
        model = parse(GATHER)
        model.graph.initializer.append(numpy_helper.from_array(np.frombuffer(VALID, np.int64), "indices"))
        location = f"{number:02}.bin"
        onnx.save(model, folder / f"{number:02}.onnx", save_as_external_data=True, location=location, size_threshold=0)
    return sorted(folder.glob("*.bin"))


def swap(data: Path, moment: float, *, in_place: bool) -> None:
    """Replace the content of a file at a time of `time.monotonic`."""
    time.sleep(max(0, moment - time.monotonic()))
    if in_place:
        data.write_bytes(INVALID)
        return
    other = data.with_suffix(".new")
    other.write_bytes(INVALID)
    other.replace(data)


def describe(report: str) -> dict[str, tuple[bool, frozenset[str], frozenset[tuple[str, str]]]]:
    """Return for each model whether it differs from the lock, the states of its cells, and why it is undecided."""
    decoded = json.loads(report)
    models = {cell["model"] for cell in decoded["cells"]} | {it["model"] for it in decoded["undecided"]}
    return {
        model: (
            any(it["rule"] == "model-changed" and it["model"] == model for it in decoded["findings"]),
            frozenset(cell["state"] for cell in decoded["cells"] if cell["model"] == model),
            frozenset((it["reason"], it["hint"]) for it in decoded["undecided"] if it["model"] == model),
        )
        for model in models
    }


def test_data_swapped_at_random(small: Repository, own_cache: Path) -> None:
    """Each model is judged with the old or the new data, or is undecided; no cached result mixes both."""
    small = small.with_environment(ONNXGATE_CACHE_DIR=own_cache)
    (small.folder / "models" / "small.onnx").unlink()
    files = save_models(small.folder / "models")
    small.write("onnxgate.toml", CONFIG)
    small.run("lock", "--offline")
    commit(small.folder)
    small.run("runtimes", "prepare")
    began = time.monotonic()
    expected = describe(small.run("check", "--output", "json").out)
    duration = time.monotonic() - began
    for folder in own_cache.iterdir():
        if folder.name != "environments":
            remove_path(folder)
    generator = random.Random(20)
    began = time.monotonic()
    with small.start("check", "--output", "json") as process:
        threads = [
            threading.Thread(
                target=swap,
                args=(file, began + generator.uniform(0.2, 0.9) * duration),
                kwargs={"in_place": generator.random() < 0.5},
            )
            for file in files
        ]
        for thread in threads:
            thread.start()
        swapped = wait(process)
        for thread in threads:
            thread.join()
    after = describe(small.run("check", "--output", "json", status=1).out)
    for file in files:
        file.write_bytes(VALID)
    restored = describe(small.run("check", "--output", "json").out)
    found = describe(swapped.out)
    undecided = {model: it for model, it in found.items() if it not in (expected[model], after[model])}

    assert {(False, frozenset({"pass"}), frozenset())} == set(expected.values())
    assert expected == restored
    assert {(True, frozenset({"fail"}))} == {it[:2] for it in after.values()}
    assert len(found) == SWAPS
    assert all(reasons == {CHANGED_FILES} for _, _, reasons in undecided.values()), undecided
    assert not (own_cache / "bugs").exists()
