"""Main loop of the worker: runs jobs one after another and sends one reply per job."""

from __future__ import annotations

import importlib
import json
import os
import signal
import site
import sys
import threading
from typing import Any, Dict, Iterator, List

from . import failures, limits, sandbox

if sys.platform != "win32":
    import select


def main(environment: str = "", permissions: str = "") -> None:
    """Process jobs until the input ends.

    `environment` is the interpreter of the environment whose packages are imported; by default, the one that runs.
    `permissions` is the file with the permissions of this process.
    """
    die_with_parent()
    channel = Channel()
    limits.disable_core_dumps()
    if permissions:
        channel.note(sandbox.apply_sandbox(permissions))
    if environment:
        sys.executable = environment
        sys.prefix = sys.exec_prefix = os.path.dirname(os.path.dirname(environment))
    if sys.flags.no_site:
        site.main()  # runs code of the environment: `.pth` files and `sitecustomize`
    channel.phase("ready")
    for request in channel.requests():
        channel.reply(_answer_request(request, channel))


def _answer_request(request: Dict[str, Any], channel: Channel) -> Dict[str, Any]:
    channel.phase("start")
    job = request["job"]
    try:
        name = "adapters." + request["engine"] if request["engine"] else "exporters.source_jobs"
        task = getattr(importlib.import_module("." + name, __package__), job["kind"])
    except Exception as error:  # noqa: BLE001 - importing an engine can raise any error
        reason = "%s: %s" % (type(error).__name__, failures.clean_text(str(error)))
        return {"outcome": "unavailable", "reason": reason}
    failure = {"type": "MemoryError", "text": "the job's memory limit was exceeded", "memory": True}
    out_of_memory = {"outcome": "refused", "failure": failure}
    with limits.limit_memory(request["memory_mib"], lambda: channel.reply(out_of_memory)):
        try:
            return {"outcome": "completed", "result": task(job, channel.phase)}
        except failures.UnusableError as error:
            return {"outcome": "unavailable", "reason": str(error)}
        except BaseException as error:  # noqa: BLE001 - includes a source that calls sys.exit
            failure = failures.describe_failure(error, os.path.dirname(job.get("model", "")))
            return {"outcome": "refused", "failure": failure}


class Channel:
    """Connection to the pool, on private copies of the file descriptors 0 and 1.

    Descriptor 0 then refers to an empty file and descriptor 1 to the log, so that Python, native code and child
    processes cannot read requests. Their output goes to the log.
    """

    def __init__(self) -> None:
        self._incoming = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
        self._outgoing = os.dup(1)
        self._id = 0
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]

    def requests(self) -> Iterator[Dict[str, Any]]:
        """Yield requests until the input ends."""
        for line in self._incoming:
            request = json.loads(line)
            self._id = request["id"]
            yield request

    def phase(self, name: str) -> None:
        """Report the start of a phase, so that the pool can name the phase of a crash."""
        self._send({"id": self._id, "phase": name})

    def note(self, notes: List[str]) -> None:
        """Report restrictions that could not be applied."""
        if notes:
            self._send({"id": self._id, "phase": "rights", "notes": notes})

    def reply(self, reply: Dict[str, Any]) -> None:
        """Reply to the current request."""
        self._send({"id": self._id, "reply": reply})

    def _send(self, message: Dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self._outgoing, data) :]


def die_with_parent() -> None:
    """Kill this worker and its children when the parent process ends, even while native code runs.

    Must be called before any thread is started.
    """
    if sys.platform == "win32":
        threading.Thread(target=_wait_for_parent_process, daemon=True).start()
        return
    # A separate process, since native code may hold the interpreter lock for a long time.
    worker = os.getpid()
    if os.fork() == 0:
        try:
            _wait_for_hangup()
        finally:
            _kill_worker(worker)


def _wait_for_hangup() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    jobs = select.poll()
    jobs.register(0, 0)  # no events: poll returns only when the last writer closes the pipe
    jobs.poll()


def _kill_worker(worker: int) -> None:
    try:
        if os.getpgrp() == worker:
            os.killpg(worker, signal.SIGKILL)
        else:
            os.kill(worker, signal.SIGKILL)
    finally:
        os._exit(0)


def _wait_for_parent_process() -> None:
    import ctypes

    synchronize, forever = 0x00100000, 0xFFFFFFFF
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    kernel.OpenProcess.restype = ctypes.c_void_p
    kernel.WaitForSingleObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    host = kernel.OpenProcess(synchronize, False, os.getppid())
    kernel.WaitForSingleObject(host, forever)
    os._exit(1)
