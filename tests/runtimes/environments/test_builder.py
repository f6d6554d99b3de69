"""Locked environments: built once, used only if complete, and never waited for unnecessarily."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from filelock import FileLock
from packaging.tags import platform_tags

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Unavailable
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.environments import storage
from onnxgate.runtimes.environments.builder import Environments, _read_versions, find_interpreter
from onnxgate.runtimes.environments.health import describe_failure, require_versions

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOWHERE = "http://127.0.0.1:9/simple"  # the discard port: refuses connections immediately

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]
Locker = Callable[[str], Locked]


FIND_UV_IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from uv import find_uv_bin

from onnxgate.project.lock.index import UvIndex
from onnxgate.runtimes.environments.builder import Environments

USER
ready = Barrier(8)


def find(_: int) -> str:
    ready.wait()
    return find_uv_bin()


with ThreadPoolExecutor(8) as threads:
    assert len({*threads.map(find, range(8))}) == 1
"""


@pytest.mark.parametrize("user", ["Environments(Path(), offline=True)", "UvIndex()"])
def test_threads_find_uv(user: str) -> None:
    """The first thread that looks for uv initializes `sysconfig`, and the others wait until that is complete."""
    subprocess.run([sys.executable, "-c", FIND_UV_IN_THREADS.replace("USER", user)], check=True)


@pytest.fixture
def small(locked: Locker) -> Locked:
    """Return a real release for tests that build environments."""
    _need_python("3.11")
    return locked("1.18.1")


@pytest.fixture
def invented() -> Locked:
    """Return a runtime that is on no package index, for the current Python version."""
    tag = f"cp{MINOR.replace('.', '')}"
    files = {name: f"{name}-1.0-{tag}-{tag}-{next(iter(platform_tags()))}.whl" for name in ("numpy", "onnxruntime")}
    packages = [
        LockedPackage(name=name, version="1.0", python=MINOR, wheels=(Wheel(file=file, sha256="0" * 64),))
        for name, file in files.items()
    ]
    pins = ("numpy==1.0", "onnxruntime==1.0")
    return LockedRuntime(engine="onnxruntime", release="1.0", python=MINOR, packages=pins), tuple(packages)


def _need_python(minor: str) -> None:
    try:
        find_interpreter(minor, CommandRunner(), offline=True)
    except UnavailableError as error:
        pytest.skip(error.message)


def prepare(cache: Path, locked: Locked, *, offline: bool = False) -> Path:
    """Prepare an environment as one `onnxgate` process does."""
    return Environments(cache, offline=offline).prepare(*locked)


def versions(interpreter: Path) -> str:
    """Return the importable versions of numpy and onnxruntime."""
    ask = "import numpy, onnxruntime; print(numpy.__version__, onnxruntime.__version__)"
    return subprocess.run([interpreter, "-I", "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def forbid_building(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every further subprocess call fail."""

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("nothing had to be built")

    monkeypatch.setattr(CommandRunner, "run", forbidden)


@pytest.mark.index
def test_environment_contains_exactly_the_locked_packages(small: Locked, tmp_path: Path) -> None:
    """It contains only the engine and numpy, whose used modules are compiled, whatever the path of the cache."""
    interpreter = prepare(tmp_path / "a cache" / "tests" / "tools", small)
    packages = interpreter.parent.parent / "lib" / "python3.11" / "site-packages"
    compiled = {path.relative_to(packages).parts[:2] for path in packages.rglob("*.pyc")}

    assert versions(interpreter) == "1.26.4 1.18.1"
    assert {"numpy-1.26.4", "onnxruntime-1.18.1"} == {path.stem for path in packages.glob("*.dist-info")}
    assert {("numpy", "core"), ("onnxruntime", "capi")} <= compiled
    assert not {("numpy", "f2py"), ("onnxruntime", "tools"), ("onnxruntime", "transformers")} & compiled


@pytest.mark.index
def test_settings_of_uv_do_not_change_an_environment(
    small: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither links to uv's cache, which runtimes cannot read, nor packages that are not locked are installed."""
    (tmp_path / "uv.toml").write_text('pip = { link-mode = "symlink" }', encoding="utf-8")
    for name, value in (
        ("UV_CONFIG_FILE", str(tmp_path / "uv.toml")),
        ("UV_LINK_MODE", "symlink"),
        ("UV_VENV_SEED", "1"),
    ):
        monkeypatch.setenv(name, value)
    packages = prepare(tmp_path / "cache", small).parent.parent / "lib" / "python3.11" / "site-packages"

    assert {"numpy-1.26.4", "onnxruntime-1.18.1"} == {path.stem for path in packages.glob("*.dist-info")}
    assert [path for path in packages.glob("*/*.py") if path.is_symlink()] == []


def test_versions_are_read_from_the_start_of_metadata(tmp_path: Path) -> None:
    """A long description is not read, and a distribution without a name or version is found, too."""
    fields = {
        "a": "Name: A_b\nVersion: 1.0",
        "c": "Name: c\r\nversion: 2",
        "d": "Version: 1",
        "e": "\n\nName: e\nVersion: 1",
    }
    for name, text in fields.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        with (tmp_path / f"{name}.dist-info" / "METADATA").open("w") as file:
            file.write(f"{text}\n\nName: other\n")
            file.truncate(2**32)
    (tmp_path / "f.dist-info").mkdir()

    expected = {"a-b": "1.0", "c": "2", "d.dist-info": "", "e.dist-info": "", "f.dist-info": ""}
    assert expected == _read_versions(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the worker process ended", "the worker process ended"),
        ("ImportError: libx.so: cannot open", "ImportError: libx.so: cannot open"),
        (
            "ImportError: Check this:\n\n * a\n\nOriginal error was:\n  libx.so",
            "ImportError: Original error was: libx.so",
        ),
        ("KeyError: " + "a" * 900, "KeyError: " + "a" * 289 + "…"),
    ],
)
def test_errors_of_the_health_check_are_one_line(text: str, expected: str) -> None:
    """The error of numpy if a library is missing has 15 lines, of which the last one is the cause."""
    assert expected == describe_failure(Unavailable(reason=text))


def test_packages_that_are_not_locked(invented: Locked) -> None:
    """An environment with a package that is not locked is not used."""
    installed = {"numpy": "2.0", "pip": "26.3", "x.dist-info": ""}
    with pytest.raises(UnavailableError) as caught:
        require_versions(invented[0], installed, {"numpy": "1.0", "onnxruntime": "1.0"})

    found = "numpy 2.0, onnxruntime (missing), pip 26.3 (not locked), x.dist-info (not locked)"
    assert caught.value.message == f"the versions installed for `onnxruntime 1.0` do not match the lock: {found}"


@pytest.mark.index
def test_a_ready_environment_is_used_as_it_is(small: Locked, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process uses the existing environment and starts no subprocess."""
    first = prepare(cache, small)
    forbid_building(monkeypatch)

    assert first == prepare(cache, small)


@pytest.mark.index
def test_two_gates_at_once_share_one_environment(small: Locked, tmp_path: Path) -> None:
    """Both processes succeed with an empty cache and use the same environment."""
    gates = [_start_gate(tmp_path, small) for _ in range(2)]
    answers = [gate.communicate(timeout=200) for gate in gates]

    assert [gate.returncode for gate in gates] == [0, 0], answers
    assert answers[0] == answers[1]
    assert versions(Path(answers[0][0].strip())) == "1.26.4 1.18.1"


@pytest.mark.index
def test_a_killed_build_is_never_trusted(small: Locked, tmp_path: Path) -> None:
    """The incomplete environment is removed and a new one is built."""
    gate = _start_gate(tmp_path, small)
    _wait_until(lambda: any(tmp_path.glob("environments/*/attempts/*/pyvenv.cfg")))
    gate.send_signal(signal.SIGKILL)
    gate.communicate()
    half_built = next(tmp_path.glob("environments/*/attempts/*"))
    trusted = list(tmp_path.glob("environments/*/ready.json"))
    interpreter = prepare(tmp_path, small)

    assert trusted == []
    assert half_built != interpreter.parent.parent
    assert versions(interpreter) == "1.26.4 1.18.1"


@pytest.mark.index
@pytest.mark.parametrize("damage", ["interpreter", "module", "added", "state", "key", "discarded"])
def test_damaged_environment_is_rebuilt(small: Locked, tmp_path: Path, damage: str) -> None:
    """The environment is rebuilt if its files have changed, its state is invalid, or it was discarded."""
    interpreter = prepare(tmp_path, small)
    _damage(damage, interpreter, tmp_path, small)
    again = prepare(tmp_path, small)

    assert interpreter != again
    assert not interpreter.parent.exists()
    assert versions(again) == "1.26.4 1.18.1"


def _damage(damage: str, interpreter: Path, cache: Path, small: Locked) -> None:
    state = next(cache.glob("environments/*/ready.json"))
    match damage:
        case "interpreter":
            interpreter.unlink()
        case "module" | "added":
            packages = storage.site_packages_of(interpreter.parent.parent)
            file = packages / ("numpy/version.py" if damage == "module" else "sitecustomize.py")
            content = file.read_bytes() if file.exists() else b""
            file.unlink(missing_ok=True)  # it may be linked to the cache of uv
            file.write_bytes(content + b"# changed")
        case "state":
            state.write_bytes(state.read_bytes()[:-2])
        case "key":
            decoded = msgspec.json.decode(state.read_bytes(), type=storage.ReadyMarker)
            state.write_bytes(msgspec.json.encode(msgspec.structs.replace(decoded, key="0" * 64)))
        case "discarded":
            Environments(cache, offline=True).discard(*small)


@pytest.mark.index
def test_copied_environment_is_reused(small: Locked, tmp_path: Path) -> None:
    """Other modification times, as after `cp -r` or in a container image, are recorded if the contents are equal."""
    interpreter = prepare(tmp_path, small)
    for path in interpreter.parent.parent.rglob("*.py"):
        os.utime(path, (0, 0))
    state = next(tmp_path.glob("environments/*/ready.json"))
    before = state.read_bytes()
    environments = Environments(tmp_path, offline=True)

    assert environments.prepare(*small) == interpreter
    assert (environments.created, environments.changed) == (set(), set())
    assert state.read_bytes() != before


def test_environment_copied_to_another_folder_is_reused(tmp_path: Path) -> None:
    """Links in an environment, such as `lib64`, lead to the copy, although the time of the link is another."""

    def build(attempt: Path) -> None:
        (attempt / "lib").mkdir(parents=True)
        (attempt / "lib" / "program").touch()
        (attempt / "lib64").symlink_to("lib")
        os.utime(attempt / "lib64", (0, 0), follow_symlinks=False)

    slot = storage.EnvironmentSlot(tmp_path / "a", "key", "lib/program")
    slot.build(build)
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    copy = msgspec.structs.replace(slot, folder=tmp_path / "b")
    link = next(tmp_path.glob("b/attempts/*/lib64"))
    os.utime(link, (1, 1), follow_symlinks=False)

    assert copy.ready() == link.parent / "lib" / "program"


@pytest.mark.index
def test_another_hash_is_another_environment_and_is_not_installed(small: Locked, tmp_path: Path) -> None:
    """A wheel with another hash is rejected with a one-line message, and no files remain."""
    runtime, packages = small
    forged = tuple(
        msgspec.structs.replace(package, wheels=tuple(Wheel(file=w.file, sha256="0" * 64) for w in package.wheels))
        for package in packages
    )
    with pytest.raises(UnavailableError) as caught:
        prepare(tmp_path, (runtime, forged))

    assert caught.value.message.startswith("`onnxruntime 1.18.1` cannot be installed: Hash mismatch for ")
    assert len(caught.value.message.splitlines()) == 1
    assert list(tmp_path.glob("environments/*/")) == []


@pytest.mark.index
def test_installed_release_must_match_the_lock(small: Locked, tmp_path: Path) -> None:
    """An installed release that does not match the locked one is rejected."""
    runtime, packages = small

    with pytest.raises(UnavailableError) as caught:
        prepare(tmp_path, (msgspec.structs.replace(runtime, release="1.17.0"), packages))

    assert caught.value.message.endswith("do not match the lock: onnxruntime 1.18.1")


def test_an_engine_that_does_not_work_is_unavailable(tmp_path: Path, locked: Locker) -> None:
    """Releases before 1.19 fail with numpy 2, so the environment is rejected with the reason."""
    _need_python("3.11")
    runtime, packages = locked("1.16.3")
    newer = locked("1.31.1")[1]
    numpy = next(each for each in newer if each.name == "numpy")
    mixed = msgspec.structs.replace(runtime, packages=(f"numpy=={numpy.version}", "onnxruntime==1.16.3"))
    with pytest.raises(UnavailableError, match=r"^`onnxruntime 1\.16\.3` does not work on this machine: \w+"):
        prepare(tmp_path, (mixed, (*packages, numpy)))

    assert list(tmp_path.glob("environments/*/")) == []


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make uv use an empty cache and an unreachable index."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", NOWHERE)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    for name in ("UV_FIND_LINKS", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_index")
def test_unresponsive_index_is_queried_once(invented: Locked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is one line, and the next runtime does not wait for the index again."""
    environments = Environments(tmp_path, offline=False)
    asked: list[list[str]] = []
    run = CommandRunner.run

    def remember(self: CommandRunner, arguments: list[str], **options: float) -> object:
        asked.append(arguments)
        return run(self, arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(CommandRunner, "run", remember)
    messages = []
    for _ in range(2):
        with pytest.raises(UnavailableError) as caught:
            environments.prepare(*invented)
        messages.append(caught.value.message)
    offline = ["--offline" in arguments for arguments in asked if "install" in arguments]

    expected = "packages cannot be downloaded: the package index is unreachable (Connection refused (os error 111))"
    assert [expected, expected] == messages
    assert offline == [False, True]
    assert list(tmp_path.glob("environments/*/")) == []


@pytest.mark.usefixtures("no_index")
def test_offline_does_not_query_the_index(invented: Locked, tmp_path: Path) -> None:
    """A package missing from uv's cache is unavailable, and the hint names the fix."""
    with pytest.raises(UnavailableError) as caught:
        prepare(tmp_path, invented, offline=True)

    assert caught.value.message == "some packages are not in uv's cache, and `--offline` prevents their download"
    assert caught.value.hint == "to download the packages, run the command once without `--offline`"


def test_a_cache_that_cannot_be_written_is_unavailable(invented: Locked, tmp_path: Path) -> None:
    """The hint names the variable that sets the cache folder."""
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"^the environment cannot be created: ") as caught:
        prepare(tmp_path / "file", invented)

    assert caught.value.hint == "set `ONNXGATE_CACHE_DIR` to another folder"


def test_closing_ends_uv(invented: Locked, tmp_path: Path) -> None:
    """No environment is prepared after `close`."""
    environments = Environments(tmp_path, offline=True)
    environments.close()
    with pytest.raises(UnavailableError, match="onnxgate is shutting down"):
        environments.prepare(*invented)


def test_closing_ends_the_wait_for_another_gate(invented: Locked, tmp_path: Path) -> None:
    """An interrupted process stops waiting for an environment that another process builds."""
    environments = Environments(tmp_path, offline=True)
    with pytest.raises(UnavailableError):
        environments.prepare(*invented)
    lock = next(tmp_path.glob("environments/*.lock"))
    with FileLock(lock), ThreadPoolExecutor() as threads:
        waiting = threads.submit(environments.prepare, *invented)
        time.sleep(0.3)
        began = time.monotonic()
        still_waiting = not waiting.done()
        environments.close()
        error = waiting.exception(30)

    assert still_waiting
    assert str(error) == "onnxgate is shutting down"
    assert time.monotonic() - began < 10


def test_variable_sets_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the variable, the user's cache folder is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("ONNXGATE_CACHE_DIR", raising=False)
    usual = storage.cache_dir()
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "own"))

    assert usual.name == "onnxgate"
    assert tmp_path / "own" == storage.cache_dir()


def _start_gate(cache: Path, small: Locked) -> subprocess.Popen[str]:
    """Start a process that prepares the same environment and prints its interpreter."""
    script = """
        import sys
        from pathlib import Path
        import msgspec
        from onnxgate.project.lock.types import LockedPackage, LockedRuntime
        from onnxgate.runtimes.environments.builder import Environments
        runtime, packages = msgspec.json.decode(sys.argv[2], type=tuple[LockedRuntime, tuple[LockedPackage, ...]])
        print(Environments(Path(sys.argv[1]), offline=False).prepare(runtime, packages))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", dedent(script), str(cache), msgspec.json.encode(small).decode()]
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.001)


@pytest.mark.parametrize("entry", ["python", "bin", ".", ".."])
def test_interpreters_are_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """An entry may be an executable, a folder of executables, an installation, or a folder of installations."""
    home = tmp_path / "installations" / "one"
    (home / "bin").mkdir(parents=True)
    python = home / "bin" / f"python{MINOR}"
    python.symlink_to(sys.executable)
    named = {"python": python, "bin": home / "bin", ".": home, "..": home.parent}[entry]
    monkeypatch.setenv("ONNXGATE_PYTHON_PATH", os.pathsep.join(["", str(tmp_path / "nothing"), str(named)]))

    assert python == find_interpreter(MINOR, CommandRunner(), offline=True)


def test_an_interpreter_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's reported version counts, not its file name."""
    liar = tmp_path / "python3.99"
    shutil.copy("/bin/sh", liar)
    monkeypatch.setenv("ONNXGATE_PYTHON_PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        find_interpreter("3.99", CommandRunner(), offline=True)

    assert caught.value.message == "Python 3.99 was not found"
    assert (
        caught.value.hint
        == "run `uv python install 3.99`, or add the folder of an installed Python 3.99 to `ONNXGATE_PYTHON_PATH`"
    )
