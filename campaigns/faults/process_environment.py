"""Process environments that lack common settings or resources."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator

import pytest

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground, bound_by_permissions, in_own_mounts, need_bound_permissions
from campaigns.faults.registry import fault


@fault("process environment", "`HOME` is not set or does not exist")
def no_home(ground: Ground) -> Iterator[FaultOutcome]:
    """If the cache folder is configured, HOME is not needed."""
    yield ground.check(expected=(0,), variables={"HOME": None, "USER": None, "XDG_CACHE_HOME": None}, about="unset")
    yield ground.check(expected=(0,), variables={"HOME": "/nonexistent", "XDG_CACHE_HOME": None}, about="nowhere")


@fault("process environment", "`HOME` is not writable and no cache folder is set")
def home_unwritable(ground: Ground) -> Iterator[FaultOutcome]:
    """Static stages pass; for other stages, a hint names the environment variable that sets the cache folder."""
    need_bound_permissions(ground.folder)
    home = ground.folder / "home"
    home.mkdir(mode=0o500)
    variables = {"HOME": home, "XDG_CACHE_HOME": None, "ONNXGATE_CACHE_DIR": None}
    yield ground.check("--static", expected=(0,), variables=variables, setup=bound_by_permissions, about="static")
    yield ground.check(expected=(3,), variables=variables, setup=bound_by_permissions)


@fault("process environment", "`TMPDIR` does not exist")
def no_tmpdir(ground: Ground) -> Iterator[FaultOutcome]:
    """A different temporary folder is used, as in other Python programs."""
    yield ground.check(expected=(0,), variables={"TMPDIR": "/nonexistent"})


@fault("process environment", "no temporary folder exists")
def no_temporary_folder(ground: Ground) -> Iterator[FaultOutcome]:
    """The error message names the environment variable that sets the temporary folder."""
    if str(ground.folder).startswith("/tmp/"):
        pytest.skip("the project is below /tmp, which this fault replaces")
    ground.truth()
    full = "mount -t tmpfs -o size=4k,nr_inodes=1 tmpfs"
    hidden = [f"{full} '{each}'" for each in (ground.temporary, "/var/tmp", "/dev/shm", "/tmp")]
    bound = f"mount --bind '{ground.project}' '{ground.project}' && mount -o remount,bind,ro '{ground.project}'"
    yield ground.check(expected=(3,), before=in_own_mounts(bound, f"cd '{ground.project}'", *hidden))


@fault("process environment", "`LANG=C` is set, and file names contain non-ASCII characters")
def locale_c(ground: Ground) -> Iterator[FaultOutcome]:
    """The locale does not affect anything, not even model names."""
    plain = {"LANG": "C", "LC_ALL": "C"}
    yield ground.check(expected=(0,), variables=plain)
    model = ground.project / "models" / "größe-模型.onnx"
    shutil.copy(ground.project / "models" / "small.onnx", model)
    yield ground.run("lock", "--offline", expected=(0,), variables=plain, locks=(_locked(ground),), about="lock")
    yield ground.check(expected=(0,), true=False, variables=plain, about="names")
    ascii_only = {**plain, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    yield ground.check("--static", expected=(2,), true=False, variables=ascii_only, about="without UTF-8")


def _locked(ground: Ground) -> str:
    """Return the expected lock."""
    before = ground.lock.read_text()
    ground.run("lock", "--offline", expected=(0,))
    new = ground.lock.read_text()
    ground.lock.write_text(before)
    return new


@fault("process environment", "`PATH` is not set")
def no_path(ground: Ground) -> Iterator[FaultOutcome]:
    """PATH is used only to find git."""
    yield ground.check(expected=(0,), variables={"PATH": None})
    yield ground.check(expected=(0,), variables={"PATH": ""}, about="empty")


@fault("process environment", "no environment variables are set")
def no_variables(ground: Ground) -> Iterator[FaultOutcome]:
    """Static stages need no environment variables."""
    variables = dict.fromkeys((*os.environ, *ground.environment))
    yield ground.check("--static", expected=(0,), variables=variables)


@fault("process environment", "the working directory was deleted", quick=True, runs=False)
def no_working_folder(ground: Ground) -> Iterator[FaultOutcome]:
    """The error message reports the missing directory; with `--config`, the check passes."""
    gone = ground.folder / "gone"

    def leave() -> None:
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()

    yield ground.run("check", "--static", expected=(2, 3), setup=leave)
    if ground.thorough:
        config = str(ground.project / "onnxgate.toml")
        yield ground.run("check", "--static", "--config", config, expected=(0, 2, 3), setup=leave, about="--config")
        yield ground.run("lock", "--offline", expected=(2, 3), setup=leave, about="lock")
        yield ground.run("--help", expected=(0,), setup=leave, about="help")


def at_most(what: int, number: int) -> Callable[[], None]:
    """Return a setup function for a child process that limits a resource."""

    def limit() -> None:
        resource.setrlimit(what, (number, number))

    return limit


@fault("process environment", "the limit on open files is low", quick=True)
def open_file_limit(ground: Ground) -> Iterator[FaultOutcome]:
    """A limit of 64 open files is sufficient; below it, an error is reported."""
    yield ground.check(expected=(0,), setup=at_most(resource.RLIMIT_NOFILE, 64), about="64")
    for number in (32, 24, 18, 16, 14, 10) if ground.thorough else ():
        yield ground.check(expected=(0, 1, 2, 3), setup=at_most(resource.RLIMIT_NOFILE, number), about=str(number))


@fault("process environment", "the limit on processes is low")
def process_limit(ground: Ground) -> Iterator[FaultOutcome]:
    """An error is reported. OpenBLAS, which numpy contains, raises SIGINT if it cannot start a thread: status 130."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("the limit does not apply to root, and `setpriv` is not installed")
        rights = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]  # the files belong to root
        user = ["setpriv", "--reuid=64999", "--clear-groups", *rights]
    else:
        user = []
    for number in (0, 1, 2, 3, 6) if ground.thorough else (1,):
        yield ground.check(
            expected=(0, 1, 2, 3, 130), before=[*user, "prlimit", f"--nproc={number}"], about=f"{number} processes"
        )


@fault("process environment", "the memory limit of onnxgate itself is low")
def memory_limit(ground: Ground) -> Iterator[FaultOutcome]:
    """The check passes or reports an error."""
    for mib in (400, 200, 100, 60) if ground.thorough else (100,):
        setup = at_most(resource.RLIMIT_DATA, mib * 2**20)
        yield ground.check("--static", expected=(0, 3), setup=setup, about=f"{mib} MiB")


@fault("process environment", "the project is read-only", quick=True, runs=False)
def project_read_only(ground: Ground) -> Iterator[FaultOutcome]:
    """A read-only project can be checked; `lock` reports that it cannot write the file."""
    need_bound_permissions(ground.folder)
    shutil.copy(ground.project / "models" / "small.onnx", ground.project / "models" / "another.onnx")
    ground.project.chmod(0o500)
    yield ground.run("lock", "--offline", expected=(3,), setup=bound_by_permissions)
    ground.project.chmod(0o700)
    (ground.project / "models" / "another.onnx").unlink()
    ground.project.chmod(0o500)
    yield ground.check("--static", expected=(0,), setup=bound_by_permissions, about="check")
    ground.project.chmod(0o700)


@fault("process environment", "a model, the config or the lock is not readable", quick=True, runs=False)
def files_unreadable(ground: Ground) -> Iterator[FaultOutcome]:
    """The error message names the unreadable file."""
    need_bound_permissions(ground.folder)
    for file, expected in (("models/small.onnx", (1, 3)), ("onnxgate.toml", (2,)), ("onnxgate.lock", (2,))):
        (ground.project / file).chmod(0)
        seen = ground.check("--static", expected=expected, setup=bound_by_permissions, true=False, about=file)
        (ground.project / file).chmod(0o644)
        yield seen
