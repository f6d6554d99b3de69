"""Ctrl-C, a runner that cancels and a terminal that is closed are the same; a second time is at once."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
INTERRUPTED = 130
GRACE_S = 20
"""So long may it take to end what runs and to remove what was only needed meanwhile."""

_told: list[int] = []


def obey() -> None:
    """From now on each of them raises `KeyboardInterrupt`, unless whoever started us wants it ignored (`nohup`)."""
    for number in (getattr(signal, name, None) for name in NAMES):
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            try:
                signal.signal(number, _interrupt)
            except ValueError:  # not in the main thread: somebody else's program decides
                return


def close() -> None:
    """What comes after the last word is too late: the interpreter would end by the signal, with another status."""
    for number in (getattr(signal, name, None) for name in NAMES):
        if number is not None and signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    if _told:
        _end()
    _told.append(number)
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: _end())
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
    raise KeyboardInterrupt


def _end() -> NoReturn:
    """End without any ado: workers and programs see that we are gone, and the next onnxgate removes what stays."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
