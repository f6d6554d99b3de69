"""Faults of the machine during real commands end with status 3, and the message names the fault."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.faults.project_under_test import in_own_mounts
from tests.harness.models import write
from tests.harness.repositories.user_repository import CommandResult, Repository

BLAME = ("bug in onnxgate", "correct the source", "correct that line", "fix the source", "\\n", "Traceback")
COPY = "import shutil, sys\nshutil.copy('fresh.bin', sys.argv[1])\n"
Run = Callable[..., CommandResult]


@pytest.fixture
def exporting(small: Repository) -> Repository:
    """Return a repository whose model is exported by a command and exceeds the size limits of these tests."""
    tensor = f"<float[25000] w = {{{','.join(['1.0'] * 25000)}}}>"
    text = f"g (float[N, 25000] x) => (float[N, 25000] y) {tensor} {{ y = Mul (x, w) }}"
    write(small.folder / "models" / "small.onnx", text)
    write(small.folder / "fresh.onnx", text.replace("Mul", "Add"))
    (small.folder / "fresh.onnx").rename(small.folder / "fresh.bin")
    small.write("copy_it.py", COPY)
    toolchain = f"[toolchain]\npython = '{Path(sys.executable).as_posix()}'\n"
    command = "command = ['{python}', 'copy_it.py', '{output}']\n"
    small.edit("onnxgate.toml", 'path = "models/**"\n', f'path = "models/**"\n{command}')
    small.write("onnxgate.toml", f"{small.read('onnxgate.toml')}\n{toolchain}")
    small.run("lock", "--offline")
    return small


def run(
    repository: Repository, *arguments: str, before: list[str] | None = None, file_bytes: int | None = None
) -> CommandResult:
    """Run the command with a prefix, or with a file-size limit."""

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    result = subprocess.run(
        [*(before or []), str(repository.program), *arguments],
        cwd=repository.folder,
        env=dict(repository.environment),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    return CommandResult(result.returncode, result.stdout, result.stderr)


def assert_named(result: CommandResult, message: str, hint: str) -> None:
    """Check that the output contains the fault and a hint, and reports nothing else as the cause."""
    both = f"{result.out}\n{result.err}"

    assert result.status == 3, both
    assert message in both
    assert hint in both
    assert [text for text in BLAME if text in both] == []


def mounted(folder: Path, options: str) -> list[str]:
    """Return a prefix that mounts a file system at a new folder."""
    folder.mkdir()
    return in_own_mounts(f"mount -t tmpfs -o {options} tmpfs '{folder}'")


@pytest.mark.parametrize("arguments", [("export",), ("check", "--stage", "export")])
def test_a_full_temporary_folder(exporting: Repository, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """If an export fails because the disk is full, the message names the temporary folder."""
    folder = tmp_path / "temporary"
    before = mounted(folder, "size=40k")
    result = run(exporting.with_environment(TMPDIR=folder), *arguments, before=before)

    assert_named(result, f"the temporary folder `{folder}`: no space left on device", "`TMPDIR`")


def test_a_full_disk_of_the_export_script(exporting: Repository, tmp_path: Path) -> None:
    """If a script fills its own disk, the message shows its line and does not blame the temporary folder."""
    disk = tmp_path / "disk"
    exporting.write("copy_it.py", f"open('{disk}/own', 'wb').write(b'0' * 100000)\n")
    result = run(exporting, "export", before=mounted(disk, "size=8k"))

    assert_named(result, "a disk is full (`copy_it.py:1`)", "free up disk space on each disk that the code writes to")
    assert "temporary folder" not in result.out


def test_an_error_that_resembles_a_full_disk(exporting: Repository) -> None:
    """An exception with the words of a full disk is a failure of the export script."""
    exporting.write("copy_it.py", "raise RuntimeError('No space left on device in token vocabulary')\n")
    result = run(exporting, "export")

    assert result.status == 1
    assert "No space left on device in token vocabulary" in result.out


def test_a_full_disk_at_the_destination(exporting: Repository, tmp_path: Path) -> None:
    """The message names the model that could not be replaced, and the file is unchanged."""
    folder = tmp_path / "disk"
    folder.mkdir()
    commands = (
        f"mount -t tmpfs -o size=900k tmpfs '{folder}'",
        f"cp -r '{exporting.folder}/models' '{exporting.folder}'/onnxgate.* '{exporting.folder}'/*.py '{folder}'",
        f"cp '{exporting.folder}/fresh.bin' '{folder}'",
        f"(dd if=/dev/zero of='{folder}/filler' bs=1k 2>/dev/null || true)",
        f"cd '{folder}'",
    )
    before = [*in_own_mounts(*commands)]
    script = f'"$@"; status=$?; cmp models/small.onnx "{exporting.folder}/models/small.onnx" || exit 99; exit $status'
    result = run(exporting, "export", before=[*before, "sh", "-c", script, "sh"])

    assert_named(result, f"cannot write to `{folder}/models/small.onnx`: no space left on device", "free up disk space")


@pytest.mark.parametrize("arguments", [("export",), ("check",), ("lock", "--upgrade", "--offline")])
def test_no_file_may_be_written(exporting: Repository, arguments: tuple[str, ...]) -> None:
    """With `ulimit -f 0`, the message names the limit and the command that raises it."""
    assert_named(run(exporting, *arguments, file_bytes=0), "the file-size limit is exceeded", "`ulimit -f unlimited`")


def test_a_file_size_limit_during_an_export(exporting: Repository) -> None:
    """A limit that is smaller than the model is reported as the cause of the failed export."""
    result = run(exporting, "export", file_bytes=20_000)

    assert_named(result, "models/small.onnx: cannot be exported: ", "`ulimit -f unlimited`")
    assert "the file-size limit is exceeded" in result.out


def test_a_file_size_limit_while_the_lock_is_written(small: Repository) -> None:
    """The message names the lock, which is unchanged."""
    before = small.read("onnxgate.lock")
    write(small.folder / "models" / "another.onnx")
    result = run(small, "lock", "--offline", file_bytes=100)

    assert_named(result, "onnxgate.lock`: the file-size limit is exceeded; the old lock is unchanged", "`ulimit -f unl")
    assert small.read("onnxgate.lock") == before


@pytest.mark.parametrize("arguments", [("check",), ("runtimes", "prepare")])
def test_a_read_only_cache(small: Repository, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Environments cannot be created; the hint names the variable that moves the cache."""
    folder = tmp_path / "cache"
    before = mounted(folder, "ro,size=1m")
    result = run(small.with_environment(ONNXGATE_CACHE_DIR=folder), *arguments, before=before)

    assert_named(result, f"cannot write to `{folder}/environments`: read-only file system", "`ONNXGATE_CACHE_DIR`")


def test_a_full_cache(small: Repository, tmp_path: Path) -> None:
    """A fault that affects all runtimes is one entry, and counts once."""
    folder = tmp_path / "cache"
    before = mounted(folder, "size=8k")
    result = run(small.with_environment(ONNXGATE_CACHE_DIR=folder), "check", "--stage", "runtime", before=before)
    entries = re.findall(
        r"^    the environment cannot be created: .*no space left on device$", result.out, re.MULTILINE
    )

    assert_named(result, "no space left on device", "`ONNXGATE_CACHE_DIR`")
    assert len(entries) == 1, result.out
    assert ": 1 undecided;" in result.out.splitlines()[-1]


@pytest.mark.parametrize("arguments", [("check",), ("export",), ("lock", "--upgrade", "--offline")])
def test_no_writable_temporary_folder(exporting: Repository, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """If all candidates are read-only, the message names the first one and the reason."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    candidates = [path for path in ("/tmp", "/var/tmp", "/usr/tmp", exporting.folder) if Path(path).is_dir()]
    read_only = [f"mount --rbind '{path}' '{path}' && mount -o remount,bind,ro '{path}'" for path in candidates]
    before = in_own_mounts(*read_only, f"mount -t tmpfs -o ro,size=1m tmpfs '{folder}'", f"cd '{exporting.folder}'")
    result = run(exporting.with_environment(TMPDIR=folder), *arguments, before=before)

    assert_named(result, f"cannot write to the temporary folder `{folder}`: read-only file system", "`TMPDIR`")


@pytest.mark.parametrize("fault", ["no package", "no program"])
def test_no_uv(small: Repository, tmp_path: Path, fault: str) -> None:
    """Without uv in the Python environment and on `PATH`, the error names the command that installs it."""
    stub = (
        "raise ImportError" if fault == "no package" else "def find_uv_bin():\n    raise FileNotFoundError('a\\nb')\n"
    )
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "uv.py").write_text(stub)
    without = small.with_environment(
        PYTHONPATH=tmp_path / "stubs", PATH="/usr/bin:/bin", ONNXGATE_CACHE_DIR=tmp_path / "cache"
    )

    for arguments in (("check",), ("lock", "--upgrade", "--offline"), ("runtimes", "prepare")):
        assert_named(run(without, *arguments), "`uv` was not found on `PATH`", "install uv: `pip install uv`")
    assert run(without, "check", "--static").status == 0
    assert run(without, "lock").status == 0


@pytest.mark.index
def test_uv_on_path(small: Repository, tmp_path: Path) -> None:
    """If the uv package is missing, the `uv` on `PATH` creates the environments."""
    from uv import find_uv_bin

    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "uv.py").write_text("raise ImportError")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to(find_uv_bin())
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    own = small.with_environment(PYTHONPATH=tmp_path / "stubs", PATH=path, ONNXGATE_CACHE_DIR=tmp_path / "cache")

    assert re.search(r"2 of 2 environments ready", run(own, "runtimes", "prepare").out)
