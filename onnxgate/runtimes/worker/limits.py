"""What a job may take of the machine."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Callable, Iterator, Optional

POLL_S = 0.2


def disable_core_dumps() -> None:
    """A crash writes no file."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@contextlib.contextmanager
def limit_memory(limit_mib: Optional[int], exceeded: Callable[[], None]) -> Iterator[None]:
    """Within it this process gets no more memory; where the kernel cannot refuse it, `exceeded` speaks and it ends."""
    if limit_mib is None:
        yield
    elif sys.platform.startswith("linux"):
        with _limit_by_kernel(limit_mib * 2**20):
            yield
    else:
        with limit_by_polling(limit_mib * 2**20, exceeded):
            yield


@contextlib.contextmanager
def _limit_by_kernel(limit_bytes: int) -> Iterator[None]:
    # Source: measured with onnxruntime 1.16.3 and 1.31.1. RLIMIT_DATA and RLIMIT_AS refuse alike, but RLIMIT_AS also
    # counts files that are only mapped and address space that is only reserved, by each thread.
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    ceiling = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextlib.contextmanager
def limit_by_polling(limit_bytes: int, exceeded: Callable[[], None]) -> Iterator[None]:
    """Within it a thread looks at this process's memory and ends the process when it is too much."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_S):
            if resident_bytes() > limit_bytes:
                exceeded()
                os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def resident_bytes() -> int:
    """Memory that this process occupies; on macOS the most that it ever did."""
    if sys.platform == "win32":
        return _windows_memory_bytes(1)
    import resource

    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """The most memory that this process ever occupied."""
    if sys.platform == "win32":
        return _windows_memory_bytes(0)
    if sys.platform == "darwin":
        return resident_bytes()
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def _windows_memory_bytes(field: int) -> int:
    import ctypes

    # PROCESS_MEMORY_COUNTERS: two 32-bit fields, then eight of pointer size; the first two of these are
    # PeakWorkingSetSize and WorkingSetSize.
    size_t, uint32 = ctypes.c_size_t, ctypes.c_uint32

    class Counters(ctypes.Structure):
        _fields_ = [("size", uint32), ("faults", uint32), ("sizes", size_t * 8)]

    counters = Counters(size=ctypes.sizeof(Counters))
    windll = ctypes.windll  # type: ignore[attr-defined,unused-ignore]
    windll.kernel32.GetCurrentProcess.restype = ctypes.c_void_p
    process = ctypes.c_void_p(windll.kernel32.GetCurrentProcess())
    windll.psapi.GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
    return int(counters.sizes[field])
