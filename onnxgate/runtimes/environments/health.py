"""Health check of a new environment: its engine runs a model as in a check, and its versions match the lock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from onnxgate.core.errors import UnavailableError
from onnxgate.core.files import temporary_folder
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    Observation,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.runtimes.engine_program import EngineProgram, run_job
from onnxgate.runtimes.sandbox import InvalidOutputError
from onnxgate.runtimes.worker_spec import JobLimits

HEALTH_TIMEOUT_S = 120.0
MAX_CAUSE_LENGTH = 300
HEALTH_MODEL = bytes.fromhex(
    "08043a340a0d0a017812017922034e65673a001201675a0f0a0178120a0a08080112040a02080362"
    "0f0a0179120a0a08080112040a02080342040a001009"
)
"""The model `<ir_version: 4, opset_import: ["": 9]> g (float[3] x) => (float[3] y) { y = Neg(x) }`.

Its versions are old because releases as old as ONNX Runtime 1.8.1 are checked.
"""


def require_versions(runtime: LockedRuntime, installed: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Check that the installed versions are those of the lock.

    Raises:
        UnavailableError: a version differs, a package is missing, or a package is not locked.
    """
    differing = sorted(name for name in installed.keys() | expected.keys() if installed.get(name) != expected.get(name))
    if differing:
        found = ", ".join(_describe_version(name, installed.get(name), expected) for name in differing)
        raise UnavailableError(f"the versions installed for `{runtime.name}` do not match the lock: {found}")


def _describe_version(name: str, version: str | None, expected: Mapping[str, str]) -> str:
    words = (name, "(missing)" if version is None else version, "" if name in expected else "(not locked)")
    return " ".join(filter(None, words))


def check_health(runtime: LockedRuntime, program: EngineProgram, commands: CommandRunner) -> None:
    """Run a model on the engine, in a worker with the limits of a check.

    Raises:
        UnavailableError: the engine does not work, or onnxgate is shutting down.
        OSError: a machine fault, such as a full disk.
    """
    import numpy as np

    with temporary_folder() as scratch:
        folder = Path(scratch)
        (folder / "model.onnx").write_bytes(HEALTH_MODEL)
        np.save(folder / "x.npy", np.ones(3, np.float32))
        (folder / "outputs").mkdir()
        case = InputCase(name="ones", origin="generated", inputs={"x": str(folder / "x.npy")})
        job = Run(model=str(folder / "model.onnx"), cases=(case,), output=str(folder / "outputs"), again=False)
        try:
            match run_job(program, job, commands, JobLimits(time_s=HEALTH_TIMEOUT_S)):
                case Completed(result=RunResult(cases=(CaseResult(failure=None, outputs=(str() as path,)),))):
                    is_right = np.load(path, allow_pickle=False).tolist() == [-1, -1, -1]
                    problem = "" if is_right else "it computes wrong results"
                case Completed(result=RunResult(cases=(CaseResult(failure=Failure() as failure),))):
                    problem = _describe_error(f"{failure.type}: {failure.text}")
                case observation:
                    problem = describe_failure(observation)
        except (InvalidOutputError, ValueError):
            problem = "its outputs are invalid"
    if problem:
        raise UnavailableError(f"`{runtime.name}` does not work on this machine: {problem}")


def describe_failure(observation: Observation) -> str:
    """Return why a job on a new environment did not complete, in one line."""
    match observation:
        case Unavailable(reason=reason):
            return _describe_error(reason)
        case Refused(failure=failure):
            return _describe_error(f"{failure.type}: {failure.text}")
        case Crashed(signal=signal):
            return f"the worker process ended with {signal}"
        case TimedOut(limit_s=limit_s):
            return f"timed out after {limit_s:g} s"
        case _:
            return "the worker process sent an invalid response"


def _describe_error(text: str) -> str:
    """Return the type of an error and the last paragraph of its text, which contains the cause, in one line."""
    kind = re.match(r"\w+: ", text)
    cause = " ".join(re.split(r"\n\s*\n", text.strip())[-1].split())
    cause = cause if len(cause) <= MAX_CAUSE_LENGTH else cause[: MAX_CAUSE_LENGTH - 1] + "…"
    return cause if kind is None or cause.startswith(kind[0]) else kind[0] + cause
