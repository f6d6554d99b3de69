"""CPU time of calls, compared between sizes of their input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def measure_cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU time of a call in seconds: the best of three, without garbage collection of other tests' objects.

    A collection in a process that ran thousands of tests takes longer than the calls that are compared.
    """
    times_s = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            began = time.process_time()
            call()
            times_s.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(times_s)
