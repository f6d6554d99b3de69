"""Ctrl-C, a runner that cancels and a terminal that is closed are the same; a second time is at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
INTERRUPTED = 130
GRACE_S = 20
"""So long may it take to end what runs and to remove what was only needed meanwhile."""

_SOON_S = 0.01
_told: list[int] = []
_unraisable = sys.unraisablehook


def obey() -> None:
    """From now on each of them raises `KeyboardInterrupt`, unless whoever started us wants it ignored (`nohup`)."""
    for number in (getattr(signal, name, None) for name in NAMES):
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            try:
                signal.signal(number, _interrupt)
            except ValueError:  # not in the main thread: somebody else's program decides
                return
    sys.unraisablehook = _swallowed


def close() -> None:
    """What comes after the last word is too late: the interpreter would end by the signal, with another status."""
    for number in (getattr(signal, name, None) for name in NAMES):
        if number is not None and signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    if _told:
        _end()
    _told.append(number)
    _raise()


def _raise(*_: object) -> NoReturn:
    _alarm(GRACE_S, lambda *_: _end())
    raise KeyboardInterrupt


def _swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """Where Python was in a callback that nothing can be raised from, it is raised a little later."""
    if not (_told and unraisable.exc_type is KeyboardInterrupt and _alarm(_SOON_S, _raise)):
        _unraisable(unraisable)


def _alarm(after_s: float, handler: Callable[[int, FrameType | None], object]) -> bool:
    if not hasattr(signal, "setitimer"):
        return False
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after_s)
    return True


def _end() -> NoReturn:
    """End without any ado: workers and programs see that we are gone, and the next onnxgate removes what stays."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)
