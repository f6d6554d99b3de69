"""Shared fixtures: a clean environment, the installed command and the requirements of marked tests."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
TOOLCHAIN = "2.13."  # the torch that fixtures/projects/quickstart exports with
CI_VARIABLES = ("CI", "NO_COLOR", "FORCE_COLOR", "VIRTUAL_ENV", "PYTHONPATH")
TOOLS = ("index", "torch", "surface", "frameworks")  # marks of tests that need more than the `test` dependency group
FULL_FOLDERS = ("tests/campaigns/", "tests/e2e/")
LONG_TESTS = (
    "tests/e2e/frameworks/",
    "tests/e2e/test_quickstart.py",
    "tests/e2e/test_repeated_exports.py",
    "tests/e2e/test_rounding_errors.py",
    "tests/e2e/test_silent_exports.py",
    "tests/e2e/test_tutorial.py",
    "tests/github/test_act.py",
    "tests/tools/test_harvest_support.py",
)
"""Files with tests of half a minute or more. They start first, since one that starts last runs alone."""
INTERRUPTING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
CI_PREFIXES = ("GITHUB_", "RUNNER_", "ACTIONS_", "ONNXGATE_INPUT_")

# Tests must not fail because the machine is busy. Other settings of the active profile are kept.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables of CI and of the calling environment."""
    for name in list(os.environ):
        if name in CI_VARIABLES or name.startswith(CI_PREFIXES):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Restore signal handlers after each test: commands that end leave signals ignored, which children inherit."""
    before = {number: signal.getsignal(number) for number in INTERRUPTING}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all pytest-xdist processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def installed(shared_folder: Path) -> Path:
    """Build the wheel once and return its `onnxgate` command, installed with the dependencies of the running Python."""
    home = shared_folder / "installed"
    with FileLock(shared_folder / "installed.lock"):
        if not (home / "ready").exists():
            _install_wheel(home)
            (home / "ready").touch()
    return _program(home / "venv", "onnxgate")


def _install_wheel(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    subprocess.run([sys.executable, "-m", "flit_core.wheel", "--outdir", home], check=True, cwd=ROOT)
    _uv("venv", "--quiet", "--python", sys.executable, str(home / "venv"))
    python = _program(home / "venv", "python")
    wheels = [str(path) for path in home.glob("*.whl")]
    own_files = "--link-mode=copy"  # as in the action, where no other environment uses the cache
    options = ("--quiet", "--no-deps", "--offline", "--compile-bytecode", own_files)
    _uv("pip", "install", *options, "--python", str(python), *wheels)
    shutil.copy2(find_uv_bin(), python.parent)  # uv 0.8 searches for `uv` only in the scripts folder of the environment
    _lend_dependencies(python)


def _lend_dependencies(python: Path) -> None:
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    Path(own, "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))


def _program(venv: Path, name: str) -> Path:
    return venv / ("Scripts" if os.name == "nt" else "bin") / name


def _uv(*arguments: str) -> None:
    subprocess.run([find_uv_bin(), *arguments], check=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def toolchain() -> Path:
    """Return an interpreter with the torch release of the quickstart project; skip the test if it is missing."""
    actual = _toolchain()
    if actual is None:
        pytest.skip(f"no Python with torch {TOOLCHAIN}* here; ONNXGATE_TEST_TOOLCHAIN may name one")
    return actual


@functools.cache
def _toolchain() -> Path | None:
    named = os.environ.get("ONNXGATE_TEST_TOOLCHAIN")
    for python in (named,) if named else (sys.executable,):
        ask = "from importlib.metadata import version; print(version('torch'))"
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if answer.stdout.startswith(TOOLCHAIN):
            return Path(python)
    return None


@functools.cache
def index_trouble() -> str:
    """Return the reason why no Python package index can be used, or ""."""
    command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-deps", "--no-cache", "--no-header", "-"]
    environment = {**os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"}
    result = subprocess.run(
        command, input="onnxruntime==1.18.1", text=True, capture_output=True, check=False, env=environment
    )
    return "" if result.returncode == 0 else f"no Python package index: {' '.join(result.stderr.split())}"


def tool(name: str) -> Path | None:
    """Return the program from the folder of the running Python, or from PATH."""
    beside = Path(sys.executable).with_name(name)
    actual = str(beside) if beside.exists() else shutil.which(name)
    return Path(actual) if actual else None


def need(name: str) -> Path:
    """Return the path of a program; skip the test if it is not installed."""
    actual = tool(name)
    if actual is None:
        pytest.skip(f"`{name}` is not installed")
    return actual


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the full tier: each test is in `-m full` or in `-m "not full"`."""
    needs_tools = any(item.get_closest_marker(name) for name in TOOLS)
    if not item.get_closest_marker("quick") and (needs_tools or item.nodeid.startswith(FULL_FOLDERS)):
        item.add_marker("full")


@pytest.hookimpl(trylast=True)  # after `-m` has deselected tests: the index is queried only if a selected test needs it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose requirements are missing, with the reason, and move long tests to the start."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_TESTS))
    for item in items:
        reason = _missing(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def _missing(item: pytest.Item) -> str:
    if item.get_closest_marker("torch") and _toolchain() is None:
        return f"no Python with torch {TOOLCHAIN}*; ONNXGATE_TEST_TOOLCHAIN may name one"
    if item.get_closest_marker("index"):
        return index_trouble()
    return ""
