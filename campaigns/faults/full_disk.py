"""Full disks, simulated by file size limits of a few bytes and by small file systems."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground, in_own_mounts
from campaigns.faults.registry import fault

SIZES = (0, 100, 4096, 65536)
FORMATS = ("json", "html", "sarif", "junit", "markdown")


def limited(size_bytes: int) -> Callable[[], None]:
    """Return a setup function that limits file sizes in the child process, so that writing fails with an error."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    return limit


def changed(ground: Ground) -> str:
    """Change the models so that the lock must be rewritten; return the expected new lock."""
    ground.lock.write_text(ground.lock.read_text().replace("sha256 = ", "sha256 = ", 1))
    shutil.copy(ground.project / "models" / "small.onnx", ground.project / "models" / "another.onnx")
    done = replace(ground, folder=ground.folder / "unharmed")
    shutil.copytree(ground.project, done.project)
    done.temporary.mkdir()
    assert done.run("lock", "--offline", expected=(0,), variables={"ONNXGATE_CACHE_DIR": ground.cache}).status == 0
    return done.lock.read_text()


def sizes(ground: Ground) -> tuple[int, ...]:
    """Return the size limits to try."""
    return SIZES if ground.thorough else (100,)


@fault("disk full", "the disk is full while the lock is written", quick=True, runs=False)
def disk_full_lock(ground: Ground) -> Iterator[FaultOutcome]:
    """The old lock is kept."""
    new = changed(ground)
    for size in sizes(ground):
        yield ground.run(
            "lock",
            "--offline",
            expected=(3,) if size < 65536 else (0,),
            setup=limited(size),
            locks=(new,),
            about=f"{size} bytes",
        )


@fault("disk full", "the disk is full while an environment is created")
def disk_full_environment(ground: Ground) -> Iterator[FaultOutcome]:
    """An incomplete environment is not used."""
    ground.truth()
    (ground.cache / "environments").unlink()
    copies = {"UV_LINK_MODE": "copy"}  # links would take no space
    for size in (4096, 2**20, 2**23) if ground.thorough else (2**20,):
        yield ground.check(expected=(3,), setup=limited(size), variables=copies, about=f"{size} bytes")
    yield ground.check(expected=(0,), about="afterwards")


@fault("disk full", "the disk is full while runtimes write their outputs", quick=True)
def disk_full_outputs(ground: Ground) -> Iterator[FaultOutcome]:
    """Missing or truncated outputs are not compared."""
    for size in sizes(ground):
        yield ground.check(expected=(3,) if size < 4096 else (0,), setup=limited(size), about=f"{size} bytes")
    if ground.thorough:
        yield ground.check(expected=(0,), about="afterwards")


@fault("disk full", "the disk is full while a report is written to a file", quick=True, runs=False)
def disk_full_reports(ground: Ground) -> Iterator[FaultOutcome]:
    """No incomplete report file is left."""
    for name in FORMATS if ground.thorough else FORMATS[:2]:
        for size in sizes(ground):
            file = ground.folder / f"report.{name}"
            file.write_text("an old report")
            arguments = ("check", "--static", "--output", f"{name}={file}")
            seen = ground.run(*arguments, expected=(3,), setup=limited(min(size, 100)), about=f"{name}, {size} bytes")
            yield replace(seen, unread=(file.name,) if file.exists() and file.stat().st_size else ())


@fault("disk full", "the disk is full while standard output is written", quick=True, runs=False)
def disk_full_standard_output(ground: Ground) -> Iterator[FaultOutcome]:
    """If the report cannot be written to standard output, the check does not pass."""
    yield ground.run("check", "--static", expected=(3,), before=_to("/dev/full"))
    if ground.thorough:
        yield ground.run("--help", expected=(3,), before=_to("/dev/full"), about="help")
        yield ground.run("lock", "--offline", expected=(3,), before=_to("/dev/full"), about="lock")
        yield ground.run("explain", "opset-too-new", expected=(3,), before=_to("/dev/full"), about="explain")


def _to(file: str) -> list[str]:
    return ["sh", "-c", f'exec "$@" >{file}', "sh"]


@fault("disk full", "the file system with the cache is full")
def disk_full_cache(ground: Ground) -> Iterator[FaultOutcome]:
    """Cache entries that only later runs need are optional."""
    small = ground.folder / "small"
    small.mkdir()
    ground.truth()
    given = {"ONNXGATE_CACHE_DIR": small}
    for size in ("4k", "1m"):
        mounted = f"mount -t tmpfs -o size={size} tmpfs '{small}'"
        yield ground.check(expected=(3,), before=in_own_mounts(mounted), variables=given, about=f"{size}, cold")
        linked = f"ln -s '{ground.shared}/environments' '{small}/environments'"
        filled = f"(dd if=/dev/zero of='{small}/filler' bs=1k 2>/dev/null || true)"
        warm = in_own_mounts(mounted, linked, filled)
        yield ground.check(expected=(0,), before=warm, variables=given, about=f"{size}, warm")


@fault("disk full", "the file system with the temporary files is full")
def disk_full_temporary(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no space for inputs and outputs."""
    small = ground.folder / "small"
    small.mkdir()
    for size in ("4k", "40k") if ground.thorough else ("4k",):
        mounted = in_own_mounts(f"mount -t tmpfs -o size={size} tmpfs '{small}'")
        given = {"TMPDIR": small}
        expected = (0, 3)
        yield ground.check(expected=expected, before=mounted, variables=given, about=size)


@fault("disk full", "the disk is full while a model is exported", quick=True)
def disk_full_export(ground: Ground) -> Iterator[FaultOutcome]:
    """The committed model stays unchanged."""
    with_command(ground)
    model = ground.project / "models" / "small.onnx"
    before = model.read_bytes()
    for size in (0, 40, 4096) if ground.thorough else (40,):
        seen = ground.run("export", expected=(3,) if size < 4096 else (0,), setup=limited(size), about=f"{size} bytes")
        whole = size >= 4096 or model.read_bytes() == before
        yield seen if whole else replace(seen, unread=("models/small.onnx",))


def with_command(ground: Ground) -> None:
    """Configure a command that exports a model different from the committed one."""
    import sys

    from tests.harness.models import write

    write(ground.project / "fresh.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Abs (x) }")
    copy = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"
    fresh = ground.project / "fresh.onnx"
    config = ground.project / "onnxgate.toml"
    command = f"command = ['{{python}}', '-c', '{copy}', '{fresh}', '{{output}}']\n"
    toolchain = f'[toolchain]\npython = "{Path(sys.executable).as_posix()}"\n'
    config.write_text(f"{config.read_text()}\n[[model]]\npath = 'models/small.onnx'\n{command}\n{toolchain}")
