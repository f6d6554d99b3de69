"""The worker does not outlive the process that started it, whatever it is doing at that moment."""

from __future__ import annotations

import os
import sys


def die_with_host() -> None:
    """Once the host is gone, this worker and all that it started are ended, also in the middle of native code.

    To be called before any thread is started.
    """
    if sys.platform == "win32":
        _watch_host_process()
    else:
        _fork_guard()


def _fork_guard() -> None:
    # A process of its own, since native code may hold the interpreter's lock for as long as it likes.
    worker = os.getpid()
    if os.fork() == 0:
        try:
            _release_outputs()
            _wait_for_hangup()
        finally:
            _end(worker)


def _release_outputs() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _wait_for_hangup() -> None:
    import select

    jobs = select.poll()
    jobs.register(0, 0)  # no event is asked for: only the hang-up of the pipe's last writer wakes it
    jobs.poll()


def _end(worker: int) -> None:
    import signal

    try:
        if os.getpgrp() == worker:
            os.killpg(worker, signal.SIGKILL)
        else:
            os.kill(worker, signal.SIGKILL)
    finally:
        os._exit(0)


def _watch_host_process() -> None:
    import threading

    threading.Thread(target=_wait_for_host_process, daemon=True).start()


def _wait_for_host_process() -> None:
    import ctypes

    synchronize, forever = 0x00100000, 0xFFFFFFFF
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    kernel.OpenProcess.restype = ctypes.c_void_p
    kernel.WaitForSingleObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    host = kernel.OpenProcess(synchronize, False, os.getppid())
    kernel.WaitForSingleObject(host, forever)
    os._exit(1)
