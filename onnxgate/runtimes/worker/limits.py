"""Memory limits and memory measurements of the worker process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Callable, Iterator, Optional

if sys.platform != "win32":
    import resource

POLL_S = 0.2


def disable_core_dumps() -> None:
    """Prevent core dumps."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


@contextlib.contextmanager
def limit_memory(limit_mib: Optional[int], exceeded: Callable[[], None]) -> Iterator[None]:
    """Limit this process's memory in the block. If the kernel cannot do this, call `exceeded` and exit at the limit."""
    if limit_mib is None:
        yield
    elif sys.platform.startswith("linux"):
        # Unlike RLIMIT_DATA, RLIMIT_AS also counts mapped files and reserved address space of threads.
        # Source: measured with onnxruntime 1.16.3 and 1.31.1.
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit_bytes = limit_mib * 2**20
        ceiling = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (ceiling, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    else:
        with limit_by_polling(limit_mib * 2**20, exceeded):
            yield


@contextlib.contextmanager
def limit_by_polling(limit_bytes: int, exceeded: Callable[[], None]) -> Iterator[None]:
    """Poll this process's memory in a thread during the block; end the process if it exceeds the limit."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(POLL_S):
            if resident_bytes() > limit_bytes:
                exceeded()
                os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; on macOS, the peak."""
    if sys.platform == "win32":
        return _windows_memory_bytes(1)
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    if sys.platform == "win32":
        return _windows_memory_bytes(0)
    if sys.platform == "darwin":
        return resident_bytes()
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def _windows_memory_bytes(field: int) -> int:
    import ctypes

    # PROCESS_MEMORY_COUNTERS: two 32-bit fields, then eight of pointer size, which begin with
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
