"""A fake engine that attempts the attack named by the model, and returns the result."""

# ruff: noqa: D103, PTH108, PTH123, PTH208 - it runs as part of the worker; each function is named after its behavior

import ctypes
import importlib
import os
import resource
import signal
import socket
import subprocess
import threading
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def load(job, phase):
    phase("load")
    return {"kind": "load", "providers": [str(globals()[Path(job["model"]).name](job))]}


def run(job, phase):
    """Return a symbolic link in place of an output file."""
    place = Path(job["output"], "0", "0.npy")
    place.parent.mkdir()
    (place.parent / "other").write_bytes(b"other")
    place.symlink_to("other")
    return {"kind": "run", "providers": [], "outputs": ["y"], "cases": [{"outputs": [str(place)]}]}


def race(job, phase):
    phase("load")
    subprocess.run(["true"], check=True)
    try:
        connect(job)
    except PermissionError:
        return {"kind": "race", "reason": "children, and no network"}
    return {"kind": "race", "reason": "children and network"}


def probe(job, phase):
    return {"kind": "probe", "python": str(os.getpid()), "packages": dict(os.environ)}


def read_the_model(job):
    return Path(job["model"]).read_text()


def import_a_module(job):
    importlib.invalidate_caches()
    return importlib.import_module("wave").__name__


def write_at_home(job):
    (Path.home() / "mine").write_text("x")
    return Path(os.environ["TMPDIR"], "mine").read_text()


def start_a_thread(job):
    actual = []
    thread = threading.Thread(target=actual.append, args=("done",))
    thread.start()
    thread.join()
    return actual


def end_itself(job):
    os.kill(os.getpid(), signal.SIGABRT)


def read_a_key(job):
    return Path(os.environ["OUTSIDE"], "key").read_text()


def read_the_named_key(job):
    return Path(os.environ["OUTSIDE"], os.environ["KEY"]).read_text()


def list_keys(job):
    return os.listdir(os.environ["OUTSIDE"])


def read_what_git_signs_in_with(job):
    return Path(job["model"]).with_name(".git").joinpath("config").read_text()


def write_outside(job):
    Path(os.environ["OUTSIDE"], "new").write_text("x")


def change_a_key(job):
    Path(os.environ["OUTSIDE"], "key").write_text("x")


def remove_a_key(job):
    Path(os.environ["OUTSIDE"], "spare").unlink()


def change_the_model(job):
    Path(job["model"]).write_text("x")


def change_its_environment(job):
    import numpy

    Path(numpy.__file__).with_name("onnxgate_test_hostile.py").write_text("")


def connect(job):
    with socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 5):
        pass


def ask_a_name(job):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


def ask_an_agent(job):
    socket.socket(socket.AF_UNIX).close()


def read_the_gate_s_variables(job):
    return len(Path(f"/proc/{os.getppid()}/environ").read_bytes())


def read_the_gate_s_memory(job):
    with open(f"/proc/{os.getppid()}/mem", "rb"):
        pass


def signal_the_gate(job):
    os.kill(os.getppid(), signal.SIGURG)  # ignored by default


def fork(job):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def start_a_program(job):
    subprocess.run(["true"], check=True)


def enter_a_namespace(job):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def dump_core(job):
    resource.setrlimit(resource.RLIMIT_CORE, (2**20, 2**20))


def fill_the_disk(job):
    with open("large", "wb") as file:
        file.truncate(2**34)  # sparse, so it uses no disk space
    os.unlink(file.name)


def tell_a_secret(job):
    return os.environ["AWS_SECRET_ACCESS_KEY"]
