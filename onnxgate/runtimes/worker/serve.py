"""The worker's loop: one job after another, each answered by one line."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable, Dict

from . import failures, guard, limits, rights, wire

Phase = Callable[[str], None]
Task = Callable[[Dict[str, Any], Phase], Dict[str, Any]]

OF_SOURCES = {
    "export": ("dispatch", "export"),
    "trace": ("tracing", "trace"),
    "inputs": ("inputs", "inputs"),
    "command": ("command", "run"),
}
"""What no engine does: kind of job -> module and function."""


def main(kept: str = "") -> None:
    """Answers jobs until the host has no more; `kept` is the file that says which rights this process keeps."""
    guard.die_with_host()
    channel = wire.Channel()
    limits.no_core_dumps()
    if kept:
        channel.note(rights.give_up(kept))
    channel.phase("ready")
    for request in channel.requests():
        channel.reply(_answer(request, channel))


def _answer(request: Dict[str, Any], channel: wire.Channel) -> Dict[str, Any]:
    channel.phase("start")
    try:
        task = _task(request["engine"], request["job"]["kind"])
    except Exception as error:  # noqa: BLE001 - an engine's own import raises what it likes
        return _unavailable("%s: %s" % (type(error).__name__, failures.clean(str(error))))
    with limits.memory_limited(request["memory_mib"], lambda: channel.reply(_out_of_memory())):
        return _perform(task, request["job"], channel.phase)


def _task(engine: str, kind: str) -> Task:
    if kind in OF_SOURCES:
        module, name = OF_SOURCES[kind]
        return getattr(_module("exporters." + module), name)  # type: ignore[no-any-return]
    if not engine:
        return _module("exporters.ready").probe  # type: ignore[no-any-return]
    return getattr(_module("adapters." + engine), kind)  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    return importlib.import_module("." + name, __package__)


def _perform(task: Task, job: Dict[str, Any], phase: Phase) -> Dict[str, Any]:
    try:
        result = task(job, phase)
    except failures.UnusableError as error:
        return _unavailable(str(error))
    except BaseException as error:  # noqa: BLE001 - also a source that ends the program
        return {"outcome": "refused", "failure": failures.failure(error, os.path.dirname(job.get("model", "")))}
    return {"outcome": "completed", "result": result}


def _unavailable(reason: str) -> Dict[str, Any]:
    return {"outcome": "unavailable", "reason": reason}


def _out_of_memory() -> Dict[str, Any]:
    failure = {"type": "MemoryError", "text": "the job's memory limit was exceeded", "memory": True}
    return {"outcome": "refused", "failure": failure}
