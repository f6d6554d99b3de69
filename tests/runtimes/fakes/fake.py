"""A fake engine that misbehaves in the way that the model's name requests."""

# ruff: noqa: D103 - it runs as part of the worker; each function is named after its behavior

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def load(job, phase):
    """Call the function that the model's name selects."""
    phase("load")
    return globals()[Path(job["model"]).name](job, phase)


def run(job, phase):
    """Behave as for `load`."""
    return load(job, phase)


def probe(job, phase):
    """Report the process and its environment."""
    return {"kind": "probe", "python": str(os.getpid()), "packages": dict(os.environ)}


def harvest(job, phase):
    """Report a written file without writing one, or write an invalid one."""
    if "NONSENSE" in os.environ:
        Path(job["output"]).write_text(os.environ["NONSENSE"], encoding="utf-8")
    return {"kind": "harvest", "registry": True, "release": "1.0", "commit": ""}


def good(job, phase):
    return {"kind": "load", "providers": ["Fake"]}


def segfault(job, phase):
    print("\x1b[31mabout to fall\x1b[0m")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


def extension_falls(job, phase):
    phase("extensions")
    segfault(job, phase)


def extension_hangs(job, phase):
    phase("extensions")
    time.sleep(600)


def exit_3(job, phase):
    os._exit(3)


def system_exit(job, phase):
    sys.exit(3)


def hang(job, phase):
    phase("case one")
    time.sleep(600)


def hang_with_the_lock(job, phase):
    """Block in native code that never releases the GIL."""
    import contextlib
    import ctypes

    with contextlib.suppress(PermissionError):  # the sandbox may forbid writing there
        note_pid(job)
    ctypes.PyDLL(None).sleep(600)


def note_pid(job):
    partial = Path(job["model"]).with_name("pid.partial")
    partial.write_text(str(os.getpid()))
    partial.rename(partial.with_name("pid"))


def flood(job, phase):
    chunk = b"x" * 2**16
    for _ in range(1600):
        os.write(1, chunk)
        os.write(2, chunk)
    return good(job, phase)


def flood_of_phases(job, phase):
    while True:
        phase("load")


def allocate(job, phase):
    return {"kind": "load", "providers": [str(len(bytes(2 * 2**30)))]}


def read_stdin(job, phase):
    return {"kind": "load", "providers": [f"read {sys.stdin.read()!r}"]}


def raise_hostile(job, phase):
    raise RuntimeError("\x1b]0;title\x07::error::\r\n\udc80" + "x" * 100_000)


def wrong_kind(job, phase):
    return {"kind": "probe", "python": "3", "packages": {}}


def wrong_type(job, phase):
    return {"kind": "load", "providers": 7}


def overlong(job, phase):
    return {"kind": "load", "providers": ["x" * (17 * 2**20)]}


def raw(job, phase, data):
    os.write(phase.__self__._outgoing, data)
    time.sleep(600)


def no_json(job, phase):
    raw(job, phase, b"Segmentation fault\n")


def no_utf8(job, phase):
    raw(job, phase, b'{"id": 1, "phase": "\xff\xfe"}\n')


def deep(job, phase):
    raw(job, phase, b'{"id": 1, "reply": ' + b"[" * 100_000 + b"\n")


def not_to_us(job, phase):
    raw(job, phase, b'{"id": 99, "reply": {"outcome": "completed", "result": {"kind": "load", "providers": []}}}\n')


def twice(job, phase):
    channel = phase.__self__
    channel.reply({"outcome": "completed", "result": good(job, phase)})
    return good(job, phase)


def too_few_cases(job, phase):
    return {"kind": "run", "providers": [], "outputs": ["y"], "cases": []}


def answer(job, path):
    return {"kind": "run", "providers": [], "outputs": ["y"], "cases": [{"outputs": [path]} for _ in job["cases"]]}


def foreign_file(job, phase):
    return answer(job, str(Path(job["output"]) / os.pardir / "foreign.npy"))


def no_file(job, phase):
    return answer(job, str(Path(job["output"]) / "0.npy"))


def too_few_outputs(job, phase):
    return {"kind": "run", "providers": [], "outputs": ["y"], "cases": [{"outputs": []} for _ in job["cases"]]}


def with_a_child(job, phase):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(json.dumps({"child": child.pid}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def meet(job, phase):
    """Return only when another worker runs the same job."""
    folder = Path(job["model"]).parent
    (folder / f"{os.getpid()}.here").touch()
    while len(list(folder.glob("*.here"))) < 2:
        time.sleep(0.01)
    return good(job, phase)
