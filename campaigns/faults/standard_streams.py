"""Standard streams that are closed or not read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault


def without(*descriptors: int) -> Callable[[], None]:
    """Return a setup function that closes streams in the child process."""

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def through(shell: str) -> list[str]:
    """Return a command prefix that runs the command in a shell pipeline."""
    return ["bash", "-c", f'"$@" {shell}; exit ${{PIPESTATUS[0]}}', "sh"]


@fault("standard streams", "the reader of a pipe exits early: `onnxgate check | head -1`", quick=True)
def pipe_broken(ground: Ground) -> Iterator[FaultOutcome]:
    """The exit status reflects the verdict, and no error about the pipe is printed."""
    yield ground.check("-v", expected=(0, 141), before=through("| head -1"), mute=True)
    if ground.thorough:
        yield ground.check("-v", expected=(0, 141), before=through("| true"), mute=True, about="closed pipe")
        yield ground.run("--help", expected=(0, 141), before=through("| true"), mute=True, about="help")
        yield ground.run("check", "--nonsense", expected=(2,), before=through("2>&1 | true"), mute=True, about="error")


@fault("standard streams", "standard output is closed")
def output_closed(ground: Ground) -> Iterator[FaultOutcome]:
    """The report file is complete."""
    yield ground.check(expected=(0,), setup=without(1))
    yield ground.run("--help", expected=(0,), setup=without(1), mute=True, about="help")


@fault("standard streams", "standard error is closed")
def error_closed(ground: Ground) -> Iterator[FaultOutcome]:
    """The report file is complete; only the exit status shows a usage error."""
    yield ground.check(expected=(0,), setup=without(2))
    yield ground.run("check", "--nonsense", expected=(2,), setup=without(2), mute=True, about="error")


@fault("standard streams", "standard input is closed")
def input_closed(ground: Ground) -> Iterator[FaultOutcome]:
    """Nothing is read from standard input."""
    yield ground.check(expected=(0,), setup=without(0))


@fault("standard streams", "all three standard streams are closed")
def all_closed(ground: Ground) -> Iterator[FaultOutcome]:
    """No file that is opened later is mistaken for a standard stream."""
    yield ground.check(expected=(0,), setup=without(0, 1, 2), mute=True)
    yield ground.run("lock", "--offline", expected=(0,), setup=without(0, 1, 2), mute=True, about="lock")
