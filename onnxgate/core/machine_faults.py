"""Detection of machine faults: full or read-only disks, exceeded limits, missing memory or permissions."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

if sys.platform != "win32":
    import resource

SPACE_HINT = "free up disk space"
WRITABLE_HINT = "make the file system writable"
OTHER_FOLDER_HINT = ", or set {} to another folder"
FILE_SIZE_HINT = "raise the file-size limit: `ulimit -f unlimited`"
OPEN_FILES_HINT = "raise the open-file limit: `ulimit -n 1024`"
PROCESSES_HINT = "raise the process limit (`ulimit -u`), or set `--jobs 1` to run one process at a time"
MEMORY_HINT = "free up memory, or set `--jobs 1` to run one process at a time"
MEMORY_LIMIT_HINT = "raise the memory limit: `ulimit -v unlimited`"
THREADS_HINT = "raise the memory limit (`ulimit -v unlimited`) or the process limit (`ulimit -u`)"
ACCESS_HINT = "give the user that runs onnxgate read and write access to this path"
LIMIT_HINTS = (FILE_SIZE_HINT, OPEN_FILES_HINT, PROCESSES_HINT, MEMORY_HINT, MEMORY_LIMIT_HINT, THREADS_HINT)
"""Hints for machine faults that do not concern a folder."""
WRITE_HINTS = {
    errno.ENOSPC: SPACE_HINT,
    errno.EDQUOT: SPACE_HINT,
    errno.EFBIG: FILE_SIZE_HINT,
    errno.EROFS: WRITABLE_HINT,
}
"""Errors that occur only when writing, each with a hint."""
HINTS = {
    **WRITE_HINTS,
    **dict.fromkeys((errno.EACCES, errno.EPERM), ACCESS_HINT),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), OPEN_FILES_HINT),
    errno.EAGAIN: PROCESSES_HINT,
    errno.ENOMEM: MEMORY_HINT,
    errno.EIO: "check the disk for errors; `dmesg` and the system log contain details",
    errno.ENXIO: "use a different path: this path is neither a regular file nor a folder",
    errno.ENOTDIR: "use a different path: one of the parents of this path is a file, not a folder",
    errno.ESTALE: "the file was replaced on the network file system; run the command again",
}
"""Hints, keyed by error number (`errno`)."""

# Error messages from other processes, which have no error number. Denied permissions are not included, since the user's
# own code may have used a wrong path.
_NUMBERED = re.compile(r"\[Errno (\d+)\]|\(os error (\d+)\)|\b(SIGXFSZ)\b")
_PHRASES = {os.strerror(number): number for number in (*WRITE_HINTS, errno.EIO, errno.EMFILE, errno.ENFILE)}
_EXCEPTION = re.compile(r"\b[A-Z]\w*(?:Error|Exception): ")
_PHRASE_AT_END = re.compile(rf": (?:{'|'.join(map(re.escape, _PHRASES))})$", re.MULTILINE)
# Source: numpy 2.4 (`ndarray.tofile`, `np.save`), torch 2.13 (`torch.save`): a short write, without a reason.
_SHORT_WRITE = re.compile(r"\b\d+ requested and \d+ written\b|PytorchStreamWriter failed writing file")
_PATHS = re.compile(
    r"\[Errno \d+\] [^:\n]+: '([^'\n]+)'(?: -> '([^'\n]+)')?"
    r"|`([^`\n]+)`: [A-Z][\w -]+ \(os error \d+\)|\bto (/\S+): [A-Z][\w -]+ \(os error \d+\)"
    r"|\(os error \d+\) at path \"([^\"\n]+)\""
)
_TEMPORARY_NAME = re.compile(r"(?<=[^/])/\.tmp\w+$")
"""Random name of a temporary file of uv. Source: uv 0.13."""
# Source: Rust's standard library (uv 0.13), glibc 2.36.
_NO_MEMORY = re.compile(
    r"memory allocation of \d+ bytes failed|failed to map segment from shared object|[Cc]annot allocate memory"
)
_ALMOST_FULL_BYTES = 2**20


class MachineFault(NamedTuple):
    """A problem with the machine, described in one line, and a hint on how to fix it."""

    message: str
    hint: str


def find_machine_fault(error: BaseException, folder: str | os.PathLike[str] = "") -> MachineFault | None:
    """Return the machine fault that caused this error; None for any other error.

    `folder` is the folder that was written to, since a failed write does not name its file.
    """
    if isinstance(error, MemoryError):
        return _explain_missing_memory()
    if isinstance(error, ImportError):  # the loader of shared libraries reports errors only as text
        return _explain_missing_memory() if _NO_MEMORY.search(str(error)) else None
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        hint = THREADS_HINT if _has_limit("RLIMIT_AS") else PROCESSES_HINT  # the system reports the same error for both
        return MachineFault("no more threads can be started", hint)
    if isinstance(error, FileNotFoundError) and error.filename is None:
        if "temporary directory" in str(error):
            return _explain_missing_temporary()
        if _is_working_folder_missing():
            return MachineFault("the working directory was removed", "change to a directory that exists")
    if isinstance(error, OSError) and error.errno in HINTS:
        name = error.filename2 or error.filename  # when copying, the target file
        path = os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else os.fspath(folder)
        return _describe(error.errno, path)
    return find_fault_in_text(str(error), folder) if isinstance(error, OSError) and error.errno is None else None


def find_fault_in_text(
    text: str, folder: str | os.PathLike[str] = "", *, is_trusted: bool = False
) -> MachineFault | None:
    """Return the machine fault described by an error message from another process; None if there is none.

    `folder` is the folder that the process writes to, since many messages do not name the file. With `is_trusted`, the
    process runs only onnxgate or uv, so denied permissions and missing memory are also faults of the machine.
    """
    number = _find_number(text, is_trusted)
    if is_trusted and (number == errno.ENOMEM or (number is None and _NO_MEMORY.search(text))):
        return _explain_missing_memory()
    if number is None:
        return None
    if not folder and _SHORT_WRITE.search(text):
        folder = _temporary_folder()  # arrays are written only there
    path = _find_path(text)
    is_elsewhere = path.startswith(os.sep) and not (folder and path.startswith(f"{os.fspath(folder)}{os.sep}"))
    return _describe(number, path if is_elsewhere else os.fspath(folder))


def find_fault_in_failure(text: str, folders: Sequence[str]) -> MachineFault | None:
    """Return the machine fault that made the user's code fail; None if the code itself is the cause.

    `folders` are those that the code probably writes to. One of them is named only if it is really full, since the code
    may have written to another disk.
    """
    number = _find_number(text)
    if number is None or not (_has_evidence(text) or any(map(_is_full, folders))):
        return None
    if _find_path(text).startswith(os.sep):
        return find_fault_in_text(text)
    if number != errno.ENOSPC:
        return _describe(number, "")
    folder = next(filter(_is_full, folders), "")
    if folder:
        return _describe(number, folder)
    return MachineFault("a disk is full", f"{SPACE_HINT} on each disk that the code writes to")


def _has_evidence(text: str) -> bool:
    """Return whether the system reported the error. The user's code may use the same words in its own exceptions."""
    if _NUMBERED.search(text) or _SHORT_WRITE.search(text):
        return True
    return _PHRASE_AT_END.search(text) is not None and not _EXCEPTION.search(text)


def _find_path(text: str) -> str:
    path = next((name for match in _PATHS.finditer(text) for name in match.groups()[::-1] if name), "")
    return _TEMPORARY_NAME.sub("", path)


def _is_full(folder: str) -> bool:
    with contextlib.suppress(OSError, AttributeError):  # Windows has no `statvfs`
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize < _ALMOST_FULL_BYTES or (status.f_files > 0 and not status.f_favail)
    return False


def _find_number(text: str, is_trusted: bool = False) -> int | None:
    for plain, system, signal in _NUMBERED.findall(text):
        number = errno.EFBIG if signal else int(plain or system)
        if number in _PHRASES.values() or (is_trusted and number in HINTS):
            return number
    if _SHORT_WRITE.search(text):
        return errno.EFBIG if _has_limit("RLIMIT_FSIZE") else errno.ENOSPC
    return next((number for phrase, number in _PHRASES.items() if phrase in text), None)


def _describe(number: int, path: str) -> MachineFault:
    reason = os.strerror(number).lower()
    if number == errno.EFBIG and _has_limit("RLIMIT_FSIZE"):
        reason = "the file-size limit is exceeded"
    subject, variables = (f"`{path}`", "") if path else ("a file", "`TMPDIR` or `ONNXGATE_CACHE_DIR`")
    if path and (folder := _temporary_folder_of(path)):
        subject, variables = f"the temporary folder `{folder}`", "`TMPDIR`"
    hint = HINTS[number]
    if variables and hint in (SPACE_HINT, WRITABLE_HINT):
        hint += OTHER_FOLDER_HINT.format(variables)
    if number in WRITE_HINTS:
        return MachineFault(f"cannot write to {subject}: {reason}", hint)
    if not path and number in (errno.EMFILE, errno.ENFILE):
        return MachineFault(reason, hint)
    if not path and number in (errno.EAGAIN, errno.ENOMEM):
        subject = "a process cannot be started"
    return MachineFault(f"{subject}: {reason}", hint)


def _temporary_folder_of(path: str) -> str:
    """Return the folder for temporary files if `path` is that folder or a folder that onnxgate created in it; otherwise
    "".
    """
    folder = _temporary_folder()
    return folder if folder and (path == folder or path.startswith(f"{folder}{os.sep}onnxgate-")) else ""


def _temporary_folder() -> str:
    """Return Python's folder for temporary files; "" if it was not used or does not exist."""
    tempfile = sys.modules.get("tempfile")
    with contextlib.suppress(OSError):
        return str(tempfile.gettempdir()) if tempfile is not None else ""
    return ""


def _explain_missing_temporary() -> MachineFault:
    """Explain why Python found no folder for temporary files; its own error does not contain the reason."""
    folder = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
    file = f"{folder}/onnxgate-{os.urandom(8).hex()}"
    number: int | None = None
    try:
        with open(file, "xb", buffering=0) as probe:  # noqa: PTH123 - pathlib is slow to import
            probe.write(b"0")
    except OSError as error:
        number = error.errno
    finally:
        with contextlib.suppress(OSError):
            os.unlink(file)  # noqa: PTH108
    reason = os.strerror(number).lower() if number else "the cause is unknown"
    if number == errno.EFBIG and _has_limit("RLIMIT_FSIZE"):
        reason = "the file-size limit is exceeded"
    hint = WRITE_HINTS.get(number or 0, "make the folder writable")
    if hint != FILE_SIZE_HINT:
        hint += OTHER_FOLDER_HINT.format("`TMPDIR`")
    return MachineFault(f"cannot write to the temporary folder `{folder}`: {reason}", hint)


def _explain_missing_memory() -> MachineFault:
    hint = MEMORY_LIMIT_HINT if _has_limit("RLIMIT_AS") else MEMORY_HINT
    return MachineFault("there is not enough memory", hint)


def _has_limit(name: str) -> bool:
    return sys.platform != "win32" and resource.getrlimit(getattr(resource, name))[0] != resource.RLIM_INFINITY


def _is_working_folder_missing() -> bool:
    """Return whether the working directory was removed. The process can still use it, but it no longer has a path."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    except OSError:
        return True
    return False
