"""Benchmark of two models: times are measured alternately in one process, memory in separate new processes.

`make` creates the session of a job, and `ready` returns a function that runs the session once.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

from . import arrays, failures, limits
from .engine_results import Job, Phase

MakeSession = Callable[[Job, Phase], Any]
PrepareRun = Callable[[Any, Dict[str, Any]], Callable[[], Any]]

WARM_UP_RUNS = 3
MIN_SAMPLE_S = 0.002
"""Minimum time of one measurement in seconds; faster models run several times per measurement."""
FLAGS = ("-I", "-B", "-X", "utf8")


def run_benchmark(job: Job, phase: Phase, make: MakeSession, ready: PrepareRun) -> Dict[str, Any]:
    """Return times and memory of both models, or the reason why they cannot be compared."""
    try:
        baseline = make({**job, "model": job["baseline"]}, phase)
    except failures.UnusableError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of the runtime
        return _no_result("the baseline does not load: %s" % failures.clean_text(str(error)))
    model = make(job, phase)
    for case in job["cases"]:
        phase("case " + case["name"])
        try:
            runs = ready(baseline, arrays.read_feeds(case)), ready(model, arrays.read_feeds(case))
            model_s, baseline_s = _measure_times(job, *runs)
        except KeyError as error:
            return _no_result("the input cases contain no value for input `%s`" % error.args[0])
        except failures.UnusableError:
            raise
        except Exception:  # noqa: BLE001, S112 - the next case may succeed
            continue
        del runs, baseline, model
        weights = _measure_memory(job, case, phase)
        return {"kind": "race", "case": case["name"], "model_s": model_s, "baseline_s": baseline_s, **weights}
    return _no_result("no input case runs on both the model and the baseline")


def _no_result(reason: str) -> Dict[str, Any]:
    return {"kind": "race", "reason": reason}


def _measure_times(job: Job, baseline: Callable[[], Any], model: Callable[[], Any]) -> Tuple[List[float], List[float]]:
    """Return the seconds per run of the model and of the baseline in each round; each is the lower of two measurements.

    The models are measured in both orders, so that a slow phase of the machine affects both equally.
    """
    only_processor = list(job["providers"]) == ["CPUExecutionProvider"] and sys.platform != "win32"  # 15 ms resolution
    clock = time.process_time if only_processor else time.perf_counter  # CPU time if one thread does all the work
    model_s: List[float] = []
    baseline_s: List[float] = []
    quickest = min(_time_runs(run, 1, clock) for run in (baseline, model) for _ in range(WARM_UP_RUNS))
    times = max(1, math.ceil(MIN_SAMPLE_S / max(quickest, 1e-7)))
    begin = time.perf_counter()
    gc.disable()
    try:
        for _ in range(job["rounds"]):
            if time.perf_counter() - begin > job["time_s"]:
                break
            samples = [_time_runs(run, times, clock) for run in (baseline, model, model, baseline)]
            baseline_s.append(min(samples[0], samples[3]))
            model_s.append(min(samples[1], samples[2]))
    finally:
        gc.enable()
    return model_s, baseline_s


def _time_runs(run: Callable[[], Any], times: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(times):
        run()
    return max(clock() - begin, 1e-9) / times


def _measure_memory(job: Job, case: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    """Return the peak memory of each model in MiB, minus the peak of a process that only imports the runtime."""
    peaks: Dict[str, List[float]] = {"model": [], "baseline": []}
    idle = []
    for _ in range(job["memory_runs"]):
        phase("measure memory")
        idle.append(_peak_in_fresh_process(job, "", case))
        for name, weights in peaks.items():
            weights.append(_peak_in_fresh_process(job, job[name], case))
    empty = max(idle, default=0.0)
    return {name + "_mib": [max(0.0, weight - empty) for weight in weights] for name, weights in peaks.items()}


def measure_peak_memory(job: Job, phase: Phase, make: MakeSession, ready: PrepareRun) -> Dict[str, Any]:
    """Return the peak memory of this process in MiB, after running the model if there is one."""
    if job["model"]:
        session = make(job, phase)
        ready(session, arrays.read_feeds(job["case"]))()
    return {"mib": limits.peak_bytes() / 2**20}


def _peak_in_fresh_process(job: Job, model: str, case: Dict[str, Any]) -> float:
    """Return the peak memory in MiB of a new worker that runs the model."""
    memory_job = {**job, "kind": "measure_memory", "model": model, "case": case}
    request = {"id": 1, "engine": "onnxruntime", "memory_mib": None, "job": memory_job}
    command = [sys.executable, *FLAGS, os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()
        for line in child.stdout:
            reply = json.loads(line).get("reply")
            if reply is not None:
                child.stdin.close()
                if reply["outcome"] != "completed":
                    raise failures.UnusableError("the process that measures memory did not run the model")
                return float(reply["result"]["mib"])
    raise failures.UnusableError("the process that measures memory exited without a result")
