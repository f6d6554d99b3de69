"""Machine faults are recognized by error number or text, and never confused with errors of the user's code."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.core.files import replace_atomically
from onnxgate.core.machine_faults import _is_full, find_fault_in_failure, find_fault_in_text, find_machine_fault
from onnxgate.core.subprocesses import find_uv

UNWRITTEN = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "", "/a/b"), ("cannot write to `/a/b`: no space left on device", "free up disk space")),
        (
            OSError(errno.EROFS, "", "/a/b"),
            ("cannot write to `/a/b`: read-only file system", "make the file system writable"),
        ),
        (
            OSError(errno.ENOSPC, "", "/source", None, "/destination"),
            ("cannot write to `/destination`: no space left on device", "free up disk space"),
        ),
        (
            UNWRITTEN,
            (
                "cannot write to a file: no space left on device",
                "free up disk space, or set `TMPDIR` or `ONNXGATE_CACHE_DIR` to another folder",
            ),
        ),
        (
            PermissionError(errno.EACCES, "", "/a/b"),
            ("`/a/b`: permission denied", "give the user that runs onnxgate read and write access to this path"),
        ),
        (
            OSError(errno.EMFILE, ""),
            ("too many open files", "raise the open-file limit: `ulimit -n 1024`"),
        ),
        (
            ImportError("libopenblas.so: failed to map segment from shared object"),
            ("there is not enough memory", "free up memory, or set `--jobs 1` to run one process at a time"),
        ),
        (
            MemoryError(),
            ("there is not enough memory", "free up memory, or set `--jobs 1` to run one process at a time"),
        ),
    ],
)
def test_an_error_with_a_number(error: BaseException, expected: tuple[str, str]) -> None:
    """The message names the file and the reason; the hint names the remedy."""
    assert find_machine_fault(error) == expected


@pytest.mark.parametrize(
    "error",
    [
        ValueError("No space left on device"),
        FileNotFoundError(errno.ENOENT, "", "/a"),
        ImportError("no module"),
        ZeroDivisionError(),
    ],
)
def test_other_errors(error: Exception) -> None:
    """A missing file or a bug is not a fault of the machine."""
    assert find_machine_fault(error) is None


def test_a_file_in_the_temporary_folder() -> None:
    """The message names the temporary folder and the variable that moves it, not a random file in it."""
    folder = tempfile.gettempdir()
    fault = find_machine_fault(OSError(errno.ENOSPC, "", f"{folder}/onnxgate-1234/0/model.onnx"))

    assert fault == (
        f"cannot write to the temporary folder `{folder}`: no space left on device",
        "free up disk space, or set `TMPDIR` to another folder",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("OSError: [Errno 28] No space left on device", "cannot write to `/scratch`: no space left on device"),
        ("OSError: [Errno 30] Read-only file system: '/mnt/x'", "cannot write to `/mnt/x`: read-only file system"),
        ("failed to create directory `/c/uv`: Read-only file system (os error 30)", "cannot write to `/c/uv`: read-"),
        (
            "failed to copy file from /a to /b/.tmp1: No space left on device (os error 28)",
            "cannot write to `/b`: no space left on device",
        ),
        (
            'Read-only file system (os error 30) at path "/c/uv/.tmp4B1RO6"',
            "cannot write to `/c/uv`: read-only file system",
        ),
        ("[Errno 28] No space left on device: 'model.onnx' -> '/scratch/0/model.onnx'", "cannot write to `/scratch`: "),
        ("cp: error writing 'x': No space left on device", "cannot write to `/scratch`: no space left on device"),
        ("OSError: 600 requested and 112 written", "cannot write to `/scratch`: "),
        ("SIGXFSZ during command `python`", "cannot write to `/scratch`: "),
    ],
)
def test_a_text_of_another_process(text: str, message: str) -> None:
    """Exporters, uv and runtimes report faults as text, often without a file."""
    fault = find_fault_in_text(text, "/scratch")

    assert fault is not None
    assert fault.message.startswith(message)
    assert fault.hint


@pytest.mark.parametrize(
    "text",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'weights.pt'",
        "PermissionError: [Errno 13] Permission denied: '/srv/weights.pt'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3 and 4x5)",
        "SIGSEGV during export",
        "memory allocation of 15 bytes failed",
    ],
)
def test_errors_of_the_users_code(text: str) -> None:
    """An incorrect path or shape in a source remains an error of that source."""
    assert find_fault_in_text(text, "/scratch") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failed to create directory `/c/uv`: Permission denied (os error 13)", "`/c/uv`: permission denied"),
        ("memory allocation of 15 bytes failed", "there is not enough memory"),
        ("ImportError: libz.so.1: failed to map segment from shared object", "there is not enough memory"),
    ],
)
def test_a_text_of_a_trusted_process(text: str, message: str) -> None:
    """Processes without user code report faults that would be errors in user code."""
    fault = find_fault_in_text(text, is_trusted=True)

    assert fault is not None
    assert fault.message == message


@pytest.mark.parametrize(
    ("is_full", "text", "message"),
    [
        (False, "OSError: [Errno 28] No space left on device", "a disk is full"),
        (False, "exit status 1: cp: error writing 'x': No space left on device", "a disk is full"),
        (True, "OSError: [Errno 28] No space left on device", "cannot write to `/scratch`: no space left on device"),
        (True, "OSError: [Errno 28] No space left on device: '/x'", "cannot write to `/x`: no space left on device"),
        (True, "RuntimeError: write: No space left on device", "cannot write to `/scratch`: no space left on device"),
        (False, "OSError: [Errno 24] Too many open files", "too many open files"),
        (False, "RuntimeError: No space left on device in token vocabulary", None),
        (False, "RuntimeError: No space left on device", None),
    ],
)
def test_a_fault_in_user_code(monkeypatch: pytest.MonkeyPatch, is_full: bool, text: str, message: str | None) -> None:
    """A folder is named only if it is full, and the words of an exception are not a fault by themselves."""
    monkeypatch.setattr("onnxgate.core.machine_faults._is_full", lambda _: is_full)
    fault = find_fault_in_failure(text, ["/scratch"])

    assert message == (fault and fault.message)


def test_a_disk_with_space() -> None:
    """A disk with free space is not reported as full; a folder that does not exist is not either."""
    assert not _is_full(tempfile.gettempdir())
    assert not _is_full("/does/not/exist")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file-size limit")
def test_a_file_size_limit() -> None:
    """The `ulimit -f` limit is named, because the disk is not full and users do not expect this limit."""
    script = (
        "import resource, tempfile\n"
        "from onnxgate.core.machine_faults import find_machine_fault\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try: tempfile.gettempdir()\n"
        "except OSError as error: print(*find_machine_fault(error), sep='\\n')\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[0].endswith("the file-size limit is exceeded")
    assert "temporary folder" in result.stdout
    assert result.stdout.splitlines()[1] == "raise the file-size limit: `ulimit -f unlimited`"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no memory limit")
def test_a_memory_limit() -> None:
    """With `ulimit -v`, freeing memory does not help; the system reports the same error for threads and memory."""
    script = (
        "import resource\n"
        "from onnxgate.core.machine_faults import find_machine_fault\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        "print(find_machine_fault(MemoryError()).hint)\n"
        'print(find_machine_fault(RuntimeError("can\'t start new thread")).hint)\n'
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines() == [
        "raise the memory limit: `ulimit -v unlimited`",
        "raise the memory limit (`ulimit -v unlimited`) or the process limit (`ulimit -u`)",
    ]


@pytest.mark.parametrize("name", [None, "its own"])
def test_a_file_that_is_replaced_is_named(tmp_path: Path, name: str | None) -> None:
    """An error names the final file, not the temporary one next to it."""
    with pytest.raises(OSError, match="No space left") as caught, replace_atomically(tmp_path / "x.lock") as temporary:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(temporary) if name else None)

    assert caught.value.filename == str(tmp_path / "x.lock")


def test_the_clean_up_does_not_hide_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux refuses to remove a file on a read-only file system, even one that does not exist."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match="Read-only") as caught, replace_atomically(tmp_path / "x.lock") as temporary:
        temporary.write_bytes(b"")

    assert caught.value.filename == str(tmp_path / "x.lock")


@pytest.mark.parametrize("fault", ["no package", "no program"])
def test_uv_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Without uv in the Python environment, the one on `PATH` is used; if there is none, the error contains the install
    command.
    """
    if fault == "no package":
        monkeypatch.setitem(sys.modules, "uv", None)
    else:

        def find() -> str:
            raise FileNotFoundError("Could not find the uv binary in:\n - /a\n - /b")

        monkeypatch.setattr("uv.find_uv_bin", find)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="`uv` was not found on `PATH`") as caught:
        find_uv()
    program = tmp_path / ("uv.exe" if os.name == "nt" else "uv")
    shutil.copy(sys.executable, program)

    assert caught.value.hint == "install uv: `pip install uv`"
    assert "\n" not in caught.value.message
    assert find_uv() == str(program)
