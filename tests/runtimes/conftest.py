"""Fixtures for runtime tests: releases locked from the real package index, and a misbehaving worker."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from uv import find_uv_bin

from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.protocol import WORKER_FOLDER
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
NUMPY = {"1.16.3": "1.26.4", "1.18.1": "1.26.4", "1.31.1": "2.3.1"}

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]


@pytest.fixture(autouse=True)
def no_downloads_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip tests whose Python version is not installed, instead of downloading it."""
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")


def _lock(release: str, python: str = "3.11", numpy: str = "", extension: str = "") -> Locked:
    """Return a release as `onnxgate.lock` pins it, optionally with an exact pin of an extension package."""
    pins = (f"numpy=={numpy or NUMPY[release]}", f"onnxruntime=={release}", *([extension] if extension else []))
    command = [find_uv_bin(), "pip", "compile", "--no-deps", "--format", "pylock.toml", "--universal", "--no-header"]
    command += ["--quiet", "--only-binary", ":all:", "--python-version", python, "-"]
    compiled = subprocess.run(command, input="\n".join(pins), capture_output=True, text=True, check=True).stdout
    packages = tuple(_package(package, python) for package in tomllib.loads(compiled)["packages"])
    names = tuple(pin.partition("==")[0] for pin in pins[2:])
    runtime = LockedRuntime(
        engine="onnxruntime", release=release, python=python, packages=tuple(sorted(pins)), extensions=names
    )
    return runtime, packages


def _package(each: dict[str, object], python: str) -> LockedPackage:
    wheels = [Wheel(file=w["url"].rpartition("/")[2], sha256=w["hashes"]["sha256"]) for w in each["wheels"]]  # type: ignore[attr-defined]
    return LockedPackage(name=str(each["name"]), version=str(each["version"]), python=python, wheels=tuple(wheels))


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> Path:
    """Return a cache shared by all tests of the run; its path contains a space."""
    return shared_folder / "a cache"


@pytest.hookimpl(tryfirst=True)  # before the tier is assigned
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that lock a release, because locking queries the package index."""
    if "locked" in getattr(item, "fixturenames", ()):
        item.add_marker("index")


@pytest.fixture(scope="session")
def locked() -> Callable[..., Locked]:
    """Return a cached function that locks a release, for a Python version and with numpy or an extension if given."""
    return functools.cache(_lock)


@pytest.fixture
def host(cache: Path) -> Iterator[WorkerPool]:
    """Yield a worker pool that runs real runtimes."""
    with WorkerPool(Environments(cache, offline=False), 2, JobLimits(time_s=60)) as host:
        yield host


@pytest.fixture(scope="session")
def fake_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the worker's folder with added adapters that misbehave."""
    folder = tmp_path_factory.mktemp("a worker") / "worker"
    shutil.copytree(WORKER_FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for adapter in (HERE / "fakes").glob("*.py"):
        shutil.copy(adapter, folder / "adapters")
    shutil.copy(HERE / "fakes" / "exporter" / "source_jobs.py", folder / "exporters")
    return folder


@pytest.fixture
def fake_host(fake_worker: Path, tmp_path: Path) -> Iterator[WorkerPool]:
    """Yield an unsandboxed pool of fake workers with a time limit of two seconds per job."""
    limits = JobLimits(time_s=2, memory_mib=1024)
    with WorkerPool(Environments(tmp_path, offline=True), 2, limits, worker=fake_worker, limited=False) as host:
        yield host


@pytest.fixture
def fake() -> WorkerSpec:
    """Return the worker specification of the fake engine."""
    return WorkerSpec("fake 1.0", "fake", interpreter=Path(sys.executable))


def alive(pid: int) -> bool:
    """Return whether a process is running; a zombie process is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    """Return a function that reports whether a process is running."""
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc")
    return alive


@pytest.fixture
def port() -> Iterator[int]:
    """Yield the port of a listening socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
