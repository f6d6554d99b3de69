"""Linux sandbox: reduced privileges, and Landlock for files.

Landlock is called through `syscall`, since libc has no wrappers for it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from typing import Any, Iterable, Sequence, Tuple

# Source: linux/prctl.h, linux/capability.h.
NO_NEW_PRIVILEGES = 38
CAPABILITIES_VERSION = 0x20080522
KEPT_CAPABILITIES = 0b110
"""Capabilities to ignore file owners and modes, which a worker may need to access the files of its job."""


def drop_privileges() -> None:
    """Deny new privileges to child processes, and drop all capabilities except those for file access."""
    library = libc()
    if library.prctl(NO_NEW_PRIVILEGES, *(ctypes.c_ulong(argument) for argument in (1, 0, 0, 0))) != 0:
        raise last_error()
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    before = (ctypes.c_uint32 * 6)()
    if library.capget(header, before) == 0 and any(before):
        after = [before[index] & KEPT_CAPABILITIES if index < 2 else 0 for index in range(6)]  # inheritable sets are 0
        library.capset(header, (ctypes.c_uint32 * 6)(*after))


# Source: linux/landlock.h. The call numbers are the same on all architectures.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15  # since versions 2, 3 and 5
SIGNALS_AND_ABSTRACT_SOCKETS = 3  # since version 6

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
"""Rights that apply to files; all other rights apply to folders only."""


def landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if Landlock is not available."""
    return max(0, _landlock_call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG)))


def restrict_files(reads: Sequence[str], writes: Sequence[str], lists: Sequence[str]) -> None:
    """Restrict this process to reading and writing these paths, and to listing the folders in `lists`.

    Paths that do not exist are ignored.

    Raises:
        OSError: the kernel rejects the rules.
    """
    version = landlock_version()
    handled = WRITE_FILE | REMOVE_AND_MAKE | READ_RIGHTS
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)):
        handled |= right if version >= since else 0
    fields = [handled] + ([0] if version >= 4 else []) + ([SIGNALS_AND_ABSTRACT_SOCKETS] if version >= 6 else [])
    attributes = struct.pack("=%dQ" % len(fields), *fields)
    ruleset = _landlock_call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise last_error()
    try:
        _add_rules(ruleset, ((path, READ_RIGHTS) for path in reads))
        _add_rules(ruleset, ((path, READ_DIR) for path in lists))
        _add_rules(ruleset, ((path, handled) for path in writes))
        if _landlock_call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            raise last_error()
    finally:
        os.close(ruleset)


def _add_rules(ruleset: int, rules: Iterable[Tuple[str, int]]) -> None:
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            allowed = rights if stat.S_ISDIR(os.fstat(descriptor).st_mode) else rights & FILE_RIGHTS
            rule = struct.pack("=Qi", allowed, descriptor)
            if allowed and _landlock_call(
                ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0)
            ):
                raise last_error()
        finally:
            os.close(descriptor)


def _landlock_call(number: int, *arguments: object) -> int:
    return int(libc().syscall(ctypes.c_long(number), *arguments))


@functools.lru_cache(maxsize=None)
def libc() -> Any:
    """Return the C library of this process."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def last_error() -> OSError:
    """Return the error of the last call of the C library."""
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
