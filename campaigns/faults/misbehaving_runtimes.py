"""Runtimes that print endlessly, return invalid results, hang or leave processes running.

A fake replaces the adapter of ONNX Runtime."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault

# Wraps the real adapter and modifies its results.
AROUND = """
import json, os, signal, subprocess, sys, time
from .honest import *
from . import honest

def _raw(phase, data):
    while data:
        data = data[os.write(phase.__self__._outgoing, data):]

def _reply(phase, result, number=None):
    channel = phase.__self__
    message = {"id": channel._id if number is None else number, "reply": {"outcome": "completed", "result": result}}
    _raw(phase, json.dumps(message).encode() + b"\\n")

def run(job, phase):
    phase("load")
    return misbehave(job, phase, lambda: honest.run(job, phase))
"""


def faked(ground: Ground, name: str, body: str) -> dict[str, Path]:
    """Return environment variables with which the fake adapter runs `body` as `misbehave(job, phase, run)`."""
    folder = ground.folder / f"fake {name}"
    if not folder.exists():
        shutil.copytree(ground.package, folder / "onnxgate", ignore=shutil.ignore_patterns("__pycache__"))
    adapters = folder / "onnxgate" / "runtimes" / "worker" / "adapters"
    if not (adapters / "honest.py").exists():
        (adapters / "onnxruntime.py").rename(adapters / "honest.py")
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    (adapters / "onnxruntime.py").write_text(f"{AROUND}\ndef misbehave(job, phase, run):\n{lines}\n", encoding="utf-8")
    return {"PYTHONPATH": folder}


def misbehaving(
    ground: Ground, bodies: dict[str, str], expected: Sequence[int] = (1, 3), limit_s: int = 3
) -> Iterator[FaultOutcome]:
    """Run a check with each fake adapter; `bodies` contains their code by name."""
    ground.truth()
    config = ground.project / "onnxgate.toml"
    config.write_text(f"{config.read_text()}\n[limits]\ntime-s = {limit_s}\n")
    chosen = bodies if ground.thorough else dict([next(iter(bodies.items()))])
    for name, body in chosen.items():
        variables = faked(ground, name, body)
        yield ground.check(expected=expected, variables=variables, about=name)


@fault("misbehaving runtime", "a runtime prints endlessly")
def runtime_prints_endlessly(ground: Ground) -> Iterator[FaultOutcome]:
    """1 GB on each stream is read and discarded."""
    body = """
chunk = b"x" * 2**20
for _ in range({}):
    os.write(1, chunk)
    os.write(2, chunk)
return run()
"""
    size = 500 if ground.thorough else 50
    yield from misbehaving(ground, {"flood": body.format(size)}, (0,), 120)


LIES = {
    "the number of a different job": "_reply(phase, run(), 99); time.sleep(60)",
    "wrong output names": "result = run(); return {**result, 'outputs': ['nonsense'] * len(result['outputs'])}",
    "too many outputs": (
        "result = run()\n"
        "for case in result['cases']: case['outputs'] = list(case['outputs']) * 2\n"
        "return {**result, 'outputs': list(result['outputs']) + ['more']}"
    ),
    "no outputs": (
        "result = run()\nfor case in result['cases']: case['outputs'] = []\nreturn {**result, 'outputs': []}"
    ),
    "outputs that are not files": (
        "result = run()\nfor case in result['cases']: case['outputs'] = [None for _ in case['outputs']]\nreturn result"
    ),
    "a file outside the folder": (
        "result = run()\nfor case in result['cases']: case['outputs'] = ['/etc/hostname' for _ in case['outputs']]\n"
        "return result"
    ),
    "a link to a file outside the folder": (
        "result = run()\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']:\n"
        "        os.unlink(path); os.symlink('/etc/hostname', path)\n"
        "return result"
    ),
    "a pipe instead of a file": (
        "result = run()\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']:\n"
        "        os.unlink(path); os.mkfifo(path)\n"
        "return result"
    ),
    "a file that is not an array": (
        "result = run()\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']: open(path, 'wb').write(b'nonsense')\n"
        "return result"
    ),
    "a truncated file": (
        "result = run()\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']: os.truncate(path, os.path.getsize(path) - 3)\n"
        "return result"
    ),
    "an array of objects": (
        "result = run()\n"
        "import numpy\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']: numpy.save(path, numpy.array([print], dtype=object), allow_pickle=True)\n"
        "return result"
    ),
    "an array with a huge shape": (
        "result = run()\n"
        "for case in result['cases']:\n"
        "    for path in case['outputs']:\n"
        "        text = b\"{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000000000,), }\"\n"
        "        text += b' ' * (117 - len(text)) + b'\\n'\n"
        "        open(path, 'wb').write(b'\\x93NUMPY\\x01\\x00' + len(text).to_bytes(2, 'little') + text)\n"
        "return result"
    ),
    "fewer cases": "result = run(); return {**result, 'cases': result['cases'][:-1]}",
    "invalid numbers": "result = run(); return {**result, 'peak_rss_mib': float('nan'), 'seconds': -1}",
    "no JSON": "_raw(phase, b'Segmentation fault\\n'); time.sleep(60)",
    "half a line, then an exit": "_raw(phase, b'{\"id\": '); os._exit(0)",
    "half a line, then silence": "_raw(phase, b'{\"id\": '); time.sleep(60)",
    "a line of 100 MB": "_raw(phase, b'x' * 100_000_000 + b'\\n'); time.sleep(60)",
    "a response of 15 MB": "result = run(); return {**result, 'providers': ['x' * 15_000_000]}",
    "the same response twice": "result = run(); _reply(phase, result); return result",
    "a response before the request": "result = run(); _reply(phase, result, phase.__self__._id + 1); return result",
    "completed without a run": "return {'kind': 'load', 'providers': []}",
    "no response, exit status 0": "os._exit(0)",
    "no response, pipe closed": "os.close(phase.__self__._outgoing); time.sleep(60)",
}


@fault("misbehaving runtime", "a runtime returns invalid results", quick=True)
def runtime_invalid_results(ground: Ground) -> Iterator[FaultOutcome]:
    """An invalid response is rejected, and only outputs of the run are used."""
    honest = {"invalid numbers": (0, 1, 3), "the same response twice": (0, 1, 3), "a response of 15 MB": (0, 1, 3)}
    ground.truth()
    config = ground.project / "onnxgate.toml"
    config.write_text(f"{config.read_text()}\n[limits]\ntime-s = 3\n")
    few = ("wrong output names", "a file outside the folder")
    for name in LIES if ground.thorough else few:
        variables = faked(ground, "lies", LIES[name])
        yield ground.check(expected=honest.get(name, (1, 3)), variables=variables, about=name)


@fault("misbehaving runtime", "a runtime never exits and ignores signals")
def runtime_never_ends(ground: Ground) -> Iterator[FaultOutcome]:
    """The runtime is killed with its child processes."""
    deaf = "for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(each, signal.SIG_IGN)\n"
    bodies = {
        "deaf": f"{deaf}while True: time.sleep(1)",
        "busy": f"{deaf}while True: pass",
        "talking": "while True: phase('run')",
    }
    yield from misbehaving(ground, bodies, limit_s=1)


@fault("misbehaving runtime", "a runtime leaves child processes running")
def runtime_leaves_processes(ground: Ground) -> Iterator[FaultOutcome]:
    """A daemon in a separate session is terminated together with the runtime."""
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], {})"
    quiet = "stdin=-3, stdout=-3, stderr=-3"
    bodies = {
        "a daemon": f"{child.format(quiet + ', start_new_session=True')}\nreturn run()",
        "a child": f"{child.format(quiet)}\nreturn run()",
        "a child that inherits the pipes": f"{child.format('start_new_session=True')}\nreturn run()",
        "a daemon, and a crash": f"{child.format(quiet + ', start_new_session=True')}\nos.abort()",
    }
    yield from misbehaving(ground, bodies, (0, 1, 3))


@fault("misbehaving runtime", "a runtime exceeds its memory limit")
def runtime_exceeds_memory(ground: Ground) -> Iterator[FaultOutcome]:
    """The allocation fails at the limit."""
    config = ground.project / "onnxgate.toml"
    ground.truth()
    config.write_text(f"{config.read_text()}\n[limits]\nmemory-mib = 1500\n")
    body = "kept = []\nwhile True: kept.append(bytearray(2**26))"
    yield ground.check(expected=(1, 3), variables=faked(ground, "memory", body))


@fault("misbehaving runtime", "a runtime crashes in different ways")
def runtime_crashes(ground: Ground) -> Iterator[FaultOutcome]:
    """Each crash is reported as a finding, not as an internal error."""
    bodies = {
        "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV); time.sleep(60)",
        "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)",
        "abort": "os.abort()",
        "exit 3": "os._exit(3)",
        "its group": "os.killpg(os.getpgrp(), signal.SIGKILL); time.sleep(60)",
        "stops": "os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)",
        "recursion": "def deeper(): return deeper()\nsys.setrecursionlimit(10**9)\nreturn deeper()",
    }
    yield from misbehaving(ground, bodies)
