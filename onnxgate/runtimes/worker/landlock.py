"""Which files this process may reach from now on, held by Linux itself; by its system calls, since libc has none."""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import struct
from typing import Any, Iterable, Sequence, Tuple

# Source: linux/landlock.h. The numbers of the calls are the same on every architecture.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14  # since the second and the third version
SIGNALS_AND_ABSTRACT_SOCKETS = 3  # since the sixth

READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
"""What a rule about a file may allow; all else is about folders."""


def version() -> int:
    """Which version of Landlock the kernel has; 0 where it has none that it lets us use."""
    return max(0, _call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG)))


def restrict(reads: Sequence[str], writes: Sequence[str], *, all_reads: bool) -> None:
    """From now on only this can be read, and this be written; with `all_reads` everything can be read.

    What is not there is left out. Raises OSError: the kernel refuses.
    """
    known = version()
    writing = WRITE_FILE | REMOVE_AND_MAKE | (REFER if known >= 2 else 0) | (TRUNCATE if known >= 3 else 0)
    handled = writing if all_reads else writing | READ
    ruleset = _ruleset(handled, known)
    try:
        _allow(ruleset, ((path, READ & handled) for path in reads))
        _allow(ruleset, ((path, handled) for path in writes))
        if _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(ruleset)


def _ruleset(handled: int, known: int) -> int:
    fields = [handled] + ([0] if known >= 4 else []) + ([SIGNALS_AND_ABSTRACT_SOCKETS] if known >= 6 else [])
    attributes = struct.pack("=%dQ" % len(fields), *fields)
    ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return ruleset


def _allow(ruleset: int, rules: Iterable[Tuple[str, int]]) -> None:
    for path, rights in rules:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            allowed = rights if stat.S_ISDIR(os.fstat(place).st_mode) else rights & OF_FILES
            rule = struct.pack("=Qi", allowed, place)
            if allowed and _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0)):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(place)


def _call(number: int, *arguments: object) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc
