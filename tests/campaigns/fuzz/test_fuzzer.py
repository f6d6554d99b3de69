"""The fuzzer detects and locates violations and continues; a short fuzzing run finds none."""

from __future__ import annotations

import ctypes
import functools
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.fuzz.minimizer import minimised
from campaigns.fuzz.mutation_kinds import KINDS, Input, mutant
from campaigns.fuzz.onnx_library import PARTS, ask
from campaigns.fuzz.reader_checks import MOST_MIB, Bench
from campaigns.fuzz.readers import DOCUMENTED, Subject
from campaigns.fuzz.supervisor import Result, Run, supervise
from onnxgate.model.reading.file_format import UnreadableModel

SLICE = 400
TRIGGER = 3


def raises(subject: Subject) -> object:
    """Raise an undocumented error."""
    return {}[subject.path.name]


def hangs(subject: Subject) -> object:
    """Hang."""
    while True:
        time.sleep(0)


def eats(subject: Subject) -> object:
    """Use much more memory than the input has bytes."""
    return len(b"x" * ((MOST_MIB + 64) * 2**20))


def crashes(subject: Subject) -> object:
    """Read an invalid address."""
    return ctypes.string_at(0)


def recurses(subject: Subject) -> object:
    """Exceed Python's recursion limit."""
    return recurses(subject)


def raise_documented_error(subject: Subject) -> object:
    """Raise a documented error."""
    raise UnreadableModel("a test")


def looked(wrong: Callable[[Subject], object], folder: Path) -> Result:
    """Return the result of a run in which one of two readers fails on one of eight inputs."""

    def sometimes(subject: Subject) -> object:
        return wrong(subject) if subject.path.read_bytes() == bytes([TRIGGER]) else None

    readers = {"structure": raise_documented_error, "wrong": sometimes}
    assert "wrong" not in DOCUMENTED
    make = lambda index: Input(0, index, "test", bytes([index]))  # noqa: E731
    return supervise(Run(make, 8, 2, lambda at: Bench(at, readers), hang_s=1.0))


@pytest.mark.parametrize(
    ("problem", "what"),
    [
        (raises, "KeyError at"),
        (hangs, "hangs"),
        (eats, "memory"),
        (crashes, "ended by SIGSEGV"),
        (recurses, "RecursionError at"),
    ],
)
def test_it_finds(problem: Callable[[Subject], object], what: str, tmp_path: Path) -> None:
    """A reader that raises, hangs, exhausts memory, crashes or recurses is reported with its input."""
    result = looked(problem, tmp_path)
    (found,) = result.found

    assert (found.index, found.find.reader) == (TRIGGER, "wrong")
    assert found.find.what.startswith(what)
    assert result.count == 8


def test_an_interrupted_run_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted campaign reports its result so far."""
    make = functools.partial(mutant, 1)
    waits = iter([0.05] * 40)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda _: sleep(wait) if (wait := next(waits, 0)) else signal.raise_signal(2))
    result = supervise(Run(make, 10**9))

    assert 0 < result.count < 10**6


def test_input_depends_only_on_seed_and_index() -> None:
    """The kind and bytes of an input depend only on the seed and the index, and differ between inputs."""
    assert mutant(5, 7) == mutant(5, 7)
    assert len({mutant(5, index).data for index in range(50)} | {mutant(6, index).data for index in range(50)}) > 90


@pytest.mark.parametrize("kind", KINDS)
def test_every_mutation_yields_inputs(kind: str) -> None:
    """Each kind of mutation yields different inputs without raising."""
    made = {mutant(1, index, (kind,)).data for index in range(4)}

    assert len(made) > 1 or kind in ("deep-branches", "deep-graphs", "diamonds")


def test_minimised() -> None:
    """The result is the smallest input that still fails."""
    assert minimised(b"a" * 300 + b"xy" + b"b" * 300, lambda data: b"x" in data and b"y" in data) == b"xy"


def test_slice() -> None:
    """No reader fails on a sample of mutations."""
    result = supervise(Run(functools.partial(mutant, 2024), SLICE, 2, functools.partial(Bench, costly_every=8)))

    assert result.count == SLICE
    assert result.found == []


def test_slice_of_onnx() -> None:
    """A crash of onnx's C++ code in a child process affects only one model."""
    answers = ask(functools.partial(mutant, 2024), 60, 1)

    assert sum(answers.inputs.values()) == 60
    assert answers.faults == []
    assert sum(answers.answered.values()) + len(answers.lost) == 60 * (1 + len(PARTS))
