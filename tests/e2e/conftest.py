"""Realistic repositories with the installed command, git and real runtimes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import ROOT
from tests.harness.marked_processes import marked
from tests.harness.models import write
from tests.harness.repositories.checkout import NOBODY, commit, copy_tree
from tests.harness.repositories.export_script import join, make_repository
from tests.harness.repositories.user_repository import INDEX_VARIABLES, Repository, usual_environment

PROJECTS = Path("fixtures/projects")
SMALL = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[[model]]
path = "models/**"
sizes = { N = [1, 3] }
"""

ENDLESS = (
    "g (float[N, 4] x) => (float[N, 4] y) <int64 rounds = {9223372036854775807}, bool go = {1}> {"
    " y = Loop(rounds, go, x) <body = body (int64 round, bool on, float[N, 4] state) => (bool still, float[N, 4] next)"
    " { still = Identity(on) next = Neg(state) }> }"
)

Make = Callable[[Path], None]
Variables = dict[str, str | Path | None]


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> Path:
    """Return the cache of locked environments that all tests share, except those that need a cold cache."""
    return shared_folder / "a cache"


@pytest.fixture
def own_cache(cache: Path, tmp_path: Path) -> Path:
    """Return a cache without results that shares its environments with all tests."""
    own = tmp_path / "a cache"
    own.mkdir()
    (cache / "environments").mkdir(parents=True, exist_ok=True)
    (own / "environments").symlink_to(cache / "environments")
    return own


@pytest.fixture(scope="session")
def command(installed: Path, cache: Path) -> Repository:
    """Return the installed command, without a folder to run it in."""
    return Repository(installed, Path(), {**usual_environment(), **NOBODY, "ONNXGATE_CACHE_DIR": str(cache)})


@pytest.fixture(scope="session")
def create_once(shared_folder: Path) -> Callable[[str, Make], Path]:
    """Return a function that creates a folder once per test run; tests must modify only copies of it."""

    def made(name: str, make: Make) -> Path:
        folder = shared_folder / name
        with FileLock(shared_folder / f"{name}.lock"):
            if not (folder / "ready").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / "ready").touch()
        return folder

    return made


@pytest.fixture
def project(command: Repository, tmp_path: Path) -> Callable[[str], Repository]:
    """Return a function that copies a fixture project to the same path in a new git repository."""

    def copied(name: str) -> Repository:
        folder = copy_tree(ROOT / PROJECTS / name, tmp_path / "repository" / PROJECTS / name)
        commit(tmp_path / "repository")
        return command.at(folder)

    return copied


@pytest.fixture
def small(command: Repository, create_once: Callable[[str, Make], Path], tmp_path: Path) -> Repository:
    """Return a repository with one small model for two releases, locked without an index."""

    def make(folder: Path) -> None:
        repository = command.at(folder / "repository")
        write(repository.folder / "models" / "small.onnx")
        repository.write("onnxgate.toml", SMALL)
        shutil.copy(ROOT / PROJECTS / "broken" / "onnxgate.lock", repository.folder)
        commit(repository.folder)
        repository.run("lock", "--offline")

    shutil.copytree(create_once("small", make) / "repository", tmp_path / "small")
    return command.at(tmp_path / "small")


@pytest.fixture
def files(command: Repository, cold: Variables, tmp_path: Path) -> Repository:
    """Return a folder outside of git, in which no packages can be installed."""
    (tmp_path / "files").mkdir()
    return command.at(tmp_path / "files").with_environment(**cold)


@pytest.fixture
def joined(
    command: Repository, toolchain: Path, create_once: Callable[[str, Make], Path], tmp_path: Path
) -> Repository:
    """Return an initialized repository that exports with its own script."""
    exporting = command.with_environment(VIRTUAL_ENV=toolchain.parent.parent)

    def make(folder: Path) -> None:
        make_repository(folder / "repository", toolchain)
        join(exporting.at(folder / "repository"))

    shutil.copytree(create_once("joined", make) / "repository", tmp_path / "joined")
    return exporting.at(tmp_path / "joined")


@pytest.fixture
def endless(small: Repository) -> Repository:
    """Return the small repository with a second model that never terminates."""
    write(small.folder / "models" / "endless.onnx", ENDLESS)
    small.run("lock", "--offline")
    return small


@pytest.fixture
def cold(tmp_path: Path) -> Variables:
    """Return variables with an unreachable index and empty caches."""
    return unanswered("http://127.0.0.1:9/simple", tmp_path)


def unanswered(index: str, folder: Path) -> Variables:
    """Return variables with which packages can be installed only from `index`."""
    caches = {"UV_CACHE_DIR": folder / "uv cache", "ONNXGATE_CACHE_DIR": folder / "cold cache"}
    own = {"UV_DEFAULT_INDEX": index, "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_RETRIES": "0"}
    return {**dict.fromkeys(INDEX_VARIABLES), **caches, **own}


@dataclass
class SilentIndex:
    """A package index that accepts connections and never responds."""

    url: str
    taken: list[socket.socket] = field(default_factory=list)

    def serve(self, server: socket.socket) -> None:
        """Accept connections until the server is shut down."""
        with contextlib.suppress(OSError):
            while True:
                self.taken.append(server.accept()[0])


@pytest.fixture
def silent_index() -> Iterator[SilentIndex]:
    """Start a silent index, which the test must connect to."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        index = SilentIndex(f"http://127.0.0.1:{server.getsockname()[1]}/simple")
        thread = threading.Thread(target=index.serve, args=(server,))
        thread.start()
        yield index
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in index.taken:
        each.close()
    assert index.taken, "the index was not queried"


@pytest.fixture
def mark() -> Iterator[str]:
    """Yield a mark that all processes of a test inherit; fail if one of them outlives the test."""
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc")
    name = uuid.uuid4().hex
    yield name
    left = marked(name)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == []
