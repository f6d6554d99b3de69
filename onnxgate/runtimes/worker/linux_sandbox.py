"""Linux sandbox: reduced privileges, Landlock for files, and seccomp for system calls.

Landlock and seccomp are called through `syscall`, since libc has no wrappers for them.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
from typing import Any, Dict, Iterable, List, Sequence, Tuple

# Source: linux/prctl.h, linux/capability.h.
NO_NEW_PRIVILEGES = 38
CAPABILITIES_VERSION = 0x20080522
KEPT_CAPABILITIES = 0b110
"""Capabilities to ignore file owners and modes, which a worker may need to access the files of its job."""


def drop_privileges() -> None:
    """Deny new privileges to child processes, and drop all capabilities except those for file access."""
    libc = _libc()
    if libc.prctl(NO_NEW_PRIVILEGES, *(ctypes.c_ulong(argument) for argument in (1, 0, 0, 0))) != 0:
        raise _last_error()
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    before = (ctypes.c_uint32 * 6)()
    if libc.capget(header, before) == 0 and any(before):
        after = [before[index] & KEPT_CAPABILITIES if index < 2 else 0 for index in range(6)]  # inheritable sets are 0
        libc.capset(header, (ctypes.c_uint32 * 6)(*after))


# Source: linux/landlock.h. The call numbers are the same on all architectures.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14  # since version 2 and version 3
SIGNALS_AND_ABSTRACT_SOCKETS = 3  # since version 6

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
"""Rights that apply to files; all other rights apply to folders only."""


def landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if Landlock is not available."""
    return max(0, _landlock_call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG)))


def restrict_files(reads: Sequence[str], writes: Sequence[str], *, all_reads: bool) -> None:
    """Restrict this process to reading and writing these paths; with `all_reads`, it can read everything.

    Paths that do not exist are ignored.

    Raises:
        OSError: the kernel rejects the rules.
    """
    version = landlock_version()
    writing = WRITE_FILE | REMOVE_AND_MAKE | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    handled = writing if all_reads else writing | READ_RIGHTS
    fields = [handled] + ([0] if version >= 4 else []) + ([SIGNALS_AND_ABSTRACT_SOCKETS] if version >= 6 else [])
    attributes = struct.pack("=%dQ" % len(fields), *fields)
    ruleset = _landlock_call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise _last_error()
    try:
        _add_rules(ruleset, ((path, READ_RIGHTS & handled) for path in reads))
        _add_rules(ruleset, ((path, handled) for path in writes))
        if _landlock_call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
            raise _last_error()
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
                raise _last_error()
        finally:
            os.close(descriptor)


def _landlock_call(number: int, *arguments: object) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _last_error() -> OSError:
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# Source: linux/prctl.h, linux/seccomp.h, linux/bpf_common.h, linux/audit.h.
SET_MODE_FILTER, SPEC_ALLOW = 1, 4
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets; of an argument, the lower half on a little-endian machine
CLONE_THREAD, CLONE_NEW_NAMESPACES = 0x10000, 0x7E020000
X32_LIMIT = 0x3FFFFFFF
"""System calls with larger numbers belong to the x32 ABI of x86_64."""

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Name -> number on each architecture. Source: the kernel's syscall_64.tbl and asm-generic/unistd.h.
CALLS: Dict[str, Tuple[int, int]] = {
    "seccomp": (317, 277),
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, -1),
    "vfork": (58, -1),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}
HIDDEN_CALLS = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""System calls reported as not implemented, so that libc and libuv fall back to calls that the filter can check."""
REFUSED_CALLS = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "bpf", "perf_event_open"),
    *("userfaultfd", "add_key", "request_key", "keyctl", "unshare", "setns", "mount", "umount2", "setpgid", "setsid"),
)
PROCESS_CALLS = ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "fork", "vfork")
"""System calls denied if the worker must not start or signal other processes."""
SELF_SIGNAL_CALLS = ("kill", "tgkill")

Instruction = Tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def restrict_system_calls(*, processes: bool) -> None:
    """Deny network access; without `processes`, also deny starting or signaling other processes.

    Raises:
        OSError: the kernel rejects the filter, or the architecture is not supported.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, "not supported on %s" % machine)
    instructions = _build_filter(machine, processes)
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    number = ctypes.c_long(_call_number("seccomp", machine))
    # The flag keeps the kernel from enabling mitigations that slow down the process.
    for flags in (SPEC_ALLOW, 0):
        if _libc().syscall(number, ctypes.c_uint(SET_MODE_FILTER), ctypes.c_uint(flags), program) == 0:
            return
    raise _last_error()


def _build_filter(machine: str, processes: bool) -> List[Instruction]:
    """Build the filter, in which the first return instruction that is reached decides."""
    program: List[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        (LOAD, 0, 0, NUMBER),
    ]
    if machine == "x86_64":
        program += [(ABOVE, 0, 1, X32_LIMIT), (RETURN, 0, 0, ERROR | errno.EPERM)]
    program += _refuse_call("socket", machine, errno.EACCES)
    for name in HIDDEN_CALLS:
        program += _refuse_call(name, machine, errno.ENOSYS)
    for name in REFUSED_CALLS if processes else (*REFUSED_CALLS, *PROCESS_CALLS):
        program += _refuse_call(name, machine, errno.EPERM)
    # Threads are always allowed; processes only with `processes` and without new namespaces.
    test = (ANY_BIT, 1, 0, CLONE_NEW_NAMESPACES) if processes else (ANY_BIT, 0, 1, CLONE_THREAD)
    program += _allow_if("clone", machine, test)
    for name in () if processes else SELF_SIGNAL_CALLS:
        program += _allow_if(name, machine, (EQUAL, 0, 1, os.getpid()))
    return [*program, (RETURN, 0, 0, ALLOW)]


def _refuse_call(name: str, machine: str, error: int) -> List[Instruction]:
    number = _call_number(name, machine)
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | error)] if number >= 0 else []


def _allow_if(name: str, machine: str, test: Instruction) -> List[Instruction]:
    """Allow the call if the test of its first argument succeeds; deny it otherwise."""
    body = [(LOAD, 0, 0, FIRST_ARGUMENT), test, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERROR | errno.EPERM)]
    return [(EQUAL, 0, len(body), _call_number(name, machine)), *body]


def _call_number(name: str, machine: str) -> int:
    return CALLS[name][list(ARCHITECTURES).index(machine)]
