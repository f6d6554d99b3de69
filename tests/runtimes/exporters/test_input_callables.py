"""Inputs from a user's callable: arrays by name, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgate.runtimes.worker.exporters import source_jobs

SAMPLES = """
import random

import numpy as np

def batches():
    for size in (1, 2):
        yield {"x": np.full((size, 2), size, np.float32), "words": ["a", "bc"], "n": 3}

def drawn():
    return [{"x": [random.random()], "y": np.random.rand(2)}]

def failing():
    yield {"x": 1}
    raise ValueError("no more")

def endless():
    while True:
        yield {"x": 1}

def mapping():
    return {"x": 1}

def nothing():
    return []

def listed():
    return [[1, 2]]

def numbered():
    return [{0: 1}]

def objects():
    return [{"x": np.array([object()])}]
"""


def _run(folder: Path, name: str) -> dict[str, Any]:
    (folder / "samples.py").write_text(SAMPLES, encoding="utf-8")
    output = folder / name
    output.mkdir()
    job = {"source": f"{folder / 'samples.py'}:{name}", "output": str(output), "folder": str(folder)}
    return source_jobs.inputs(job, lambda _: None)


def _arrays(result: dict[str, Any]) -> list[dict[str, Any]]:
    cases = result["cases"]
    return [{name: np.load(path, allow_pickle=False).tolist() for name, path in case.items()} for case in cases]


def test_each_mapping_is_a_case(tmp_path: Path) -> None:
    """Values may be arrays, lists, strings or numbers, and the callable may be a generator."""
    result = _run(tmp_path, "batches")

    assert result["failure"] is None
    assert _arrays(result) == [
        {"x": [[1.0, 1.0]], "words": ["a", "bc"], "n": 3},
        {"x": [[2.0, 2.0], [2.0, 2.0]], "words": ["a", "bc"], "n": 3},
    ]


def test_random_inputs_are_the_same_each_time(tmp_path: Path) -> None:
    """Random inputs are reproducible, so that a failure is too."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    assert _arrays(_run(tmp_path / "one", "drawn")) == _arrays(_run(tmp_path / "two", "drawn"))


def test_failure_names_the_line(tmp_path: Path) -> None:
    """The failure names the line in the user's file."""
    failure = _run(tmp_path, "failing")["failure"]

    assert (failure["type"], failure["text"], failure["source"]) == ("ValueError", "no more", "samples.py:15")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endless", "`endless` returned more than 100 cases; return at most 100"),
        (
            "mapping",
            "`mapping` returned a value of type `dict`; expected a list of mappings from input names to arrays",
        ),
        ("nothing", "`nothing` returned no cases"),
        ("listed", "case 0 of `listed` is a value of type `list`; expected a mapping from input names to arrays"),
        ("numbered", "case 0 of `numbered` has the key `0`, which is not a string; expected the name of an input"),
        ("objects", "`x` in case 0 of `objects` is a value of type `ndarray`; expected an array of numbers or strings"),
        ("absent", "`samples.py` has no callable `absent`"),
    ],
)
def test_callable_without_inputs(name: str, text: str, tmp_path: Path) -> None:
    """The message describes the expected return value."""
    assert _run(tmp_path, name)["failure"]["text"] == text
