"""Filter of system calls (seccomp), for x86_64 and aarch64.

It denies network access, inter-process communication, everything that affects other processes, and changes of file
attributes, which Landlock does not restrict. System calls that are newer than this list do not exist in the sandbox.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Dict, Iterable, List, Tuple

from .linux_sandbox import last_error, libc

# Source: linux/seccomp.h, linux/bpf_common.h, linux/audit.h.
SET_MODE_FILTER, SPEC_ALLOW = 1, 4
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets; of an argument, the lower half on a little-endian machine
ARGUMENT_BYTES = 8
CLONE_THREAD, CLONE_NEW_NAMESPACES = 0x10000, 0x7E020000

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST_CALL = 450
"""Number of the newest system call that exists in the sandbox, on both architectures. All of these are known here.

Programs treat newer ones as missing, as on Linux 6.4. This also excludes the x32 ABI of x86_64.
"""
# Name and number on each architecture; -1 if missing. Source: the kernel's syscall_64.tbl and asm-generic/unistd.h.
_CALL_TABLE = """
seccomp 317 277; socket 41 198; fcntl 72 25; ioctl 16 29; prlimit64 302 261; io_uring_setup 425 425;
io_uring_enter 426 426; io_uring_register 427 427;
clone 56 220; clone3 435 435; fork 57 -1; vfork 58 -1; setpgid 109 154; setsid 112 157; unshare 272 97;
setns 308 268; kill 62 129; tkill 200 130; tgkill 234 131; pidfd_send_signal 424 424; rt_sigqueueinfo 129 138;
rt_tgsigqueueinfo 297 240; ptrace 101 117; process_vm_readv 310 270; process_vm_writev 311 271; kcmp 312 272;
pidfd_open 434 434; pidfd_getfd 438 438; process_madvise 440 440; process_mrelease 448 448; migrate_pages 256 238;
move_pages 279 239; get_robust_list 274 100; setpriority 141 140; ioprio_set 251 30; sched_setaffinity 203 122;
sched_setscheduler 144 119; sched_setparam 142 118; sched_setattr 314 274;
chmod 90 -1; fchmod 91 52; fchmodat 268 53; chown 92 -1; lchown 94 -1; fchown 93 55; fchownat 260 54; utime 132 -1;
utimes 235 -1; futimesat 261 -1; utimensat 280 88; setxattr 188 5; lsetxattr 189 6; fsetxattr 190 7;
removexattr 197 14; lremovexattr 198 15; fremovexattr 199 16; getxattr 191 8; lgetxattr 192 9; fgetxattr 193 10;
listxattr 194 11; llistxattr 195 12; flistxattr 196 13; truncate 76 45;
shmget 29 194; shmat 30 196; shmctl 31 195; semget 64 190; semop 65 193; semctl 66 191; semtimedop 220 192;
msgget 68 186; msgsnd 69 189; msgrcv 70 188; msgctl 71 187; mq_open 240 180; mq_unlink 241 181; inotify_init 253 -1;
inotify_init1 294 26; inotify_add_watch 254 27; fanotify_init 300 262; fanotify_mark 301 263;
bpf 321 280; perf_event_open 298 241; userfaultfd 323 282; add_key 248 217; request_key 249 218; keyctl 250 219;
mount 165 40; umount2 166 39; pivot_root 155 41; chroot 161 51; open_tree 428 428; move_mount 429 429;
fsopen 430 430; fsconfig 431 431; fsmount 432 432; fspick 433 433; mount_setattr 442 442; name_to_handle_at 303 264;
open_by_handle_at 304 265; quotactl 179 60; quotactl_fd 443 443; acct 163 89; swapon 167 224; swapoff 168 225;
reboot 169 142; kexec_load 246 104; kexec_file_load 320 294; init_module 175 105; finit_module 313 273;
delete_module 176 106; syslog 103 116; iopl 172 -1; ioperm 173 -1; sethostname 170 161; setdomainname 171 162;
vhangup 153 58; lookup_dcookie 212 18; settimeofday 164 170; clock_settime 227 112; adjtimex 159 171;
clock_adjtime 305 266;
"""
CALLS: Dict[str, Tuple[int, int]] = {
    name: (int(x86_64), int(aarch64))
    for name, x86_64, aarch64 in (entry.split() for entry in _CALL_TABLE.split(";") if entry.strip())
}
MISSING_CALLS = (
    *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("inotify_init", "inotify_init1", "inotify_add_watch"),
)
"""System calls reported as not implemented, so that libc and libuv fall back to calls that the filter can check."""
ATTRIBUTE_CALLS = ("getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr")
"""System calls reported as not supported by the file system, so that functions that copy files ignore attributes."""
PROCESS_CALLS = ("fork", "vfork")
"""System calls denied if the worker must not start other processes."""
SELF_SIGNAL_CALLS = ("kill", "tgkill")
OWN_PROCESS_CALLS = (*("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"),)
"""System calls whose first argument must be 0 or this process."""
CHECKED_CALLS = (*SELF_SIGNAL_CALLS, *OWN_PROCESS_CALLS, "clone", "fcntl", "ioctl")
REFUSED_CALLS = tuple(
    name
    for name in CALLS
    if name not in (*MISSING_CALLS, *ATTRIBUTE_CALLS, *PROCESS_CALLS, *CHECKED_CALLS, "seccomp", "socket")
)

REFUSED_FILE_COMMANDS = (8, 10, 15, 1024, 1026)
"""Commands of `fcntl` that signal other processes or block them: `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`, `F_SETLEASE`
and `F_NOTIFY`. Source: linux/fcntl.h."""
DEVICE_COMMANDS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Commands of `ioctl` that are allowed without devices: `TCGETS`, `TCGETS2`, `TIOCGWINSZ`, `FIONREAD`, `FIONBIO`,
`FIONCLEX` and `FIOCLEX`. Source: asm-generic/ioctls.h."""
REFUSED_DEVICE_COMMANDS = (
    *(0x5412, 0x541C, 0x8901, 0x8902, 0x40086602, 0x40087602, 0x401C5820, 0x40806685, 0x800C6613),
)
"""Commands of `ioctl` that are refused with devices: `TIOCSTI` and `TIOCLINUX` (input of a terminal), `FIOSETOWN` and
`SIOCSPGRP` (signals), and `FS_IOC_SETFLAGS`, `FS_IOC_SETVERSION`, `FS_IOC_FSSETXATTR`, `FS_IOC_ENABLE_VERITY` and
`FS_IOC_SET_ENCRYPTION_POLICY` (files that are open for reading). Source: asm-generic/ioctls.h, linux/fs.h."""

Instruction = Tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def restrict_system_calls(*, processes: bool, devices: bool) -> None:
    """Apply the filter. `processes` allows starting processes, `devices` the use of devices.

    Raises:
        OSError: the kernel rejects the filter, or the architecture is not supported.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, "not supported on %s" % machine)
    instructions = build_filter(machine, processes=processes, devices=devices)
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    number = ctypes.c_long(_call_number("seccomp", machine))
    # The flag keeps the kernel from enabling mitigations that slow down the process.
    for flags in (SPEC_ALLOW, 0):
        if libc().syscall(number, ctypes.c_uint(SET_MODE_FILTER), ctypes.c_uint(flags), program) == 0:
            return
    raise last_error()


def build_filter(machine: str, *, processes: bool, devices: bool) -> List[Instruction]:
    """Build the filter, in which the first return instruction that is reached decides."""
    program: List[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        (LOAD, 0, 0, NUMBER),
        (ABOVE, 0, 1, NEWEST_CALL),
        (RETURN, 0, 0, ERROR | errno.ENOSYS),
    ]
    if devices:
        program += _refuse_values("ioctl", machine, 1, REFUSED_DEVICE_COMMANDS)
    else:
        program += _allow_values("ioctl", machine, 1, DEVICE_COMMANDS, errno.ENOTTY)
    program += _refuse_values("fcntl", machine, 1, REFUSED_FILE_COMMANDS)
    for name in OWN_PROCESS_CALLS:
        program += _allow_values(name, machine, 0, (0, os.getpid()), errno.EPERM)
    for name in SELF_SIGNAL_CALLS:
        program += _allow_values(name, machine, 0, (os.getpid(),), errno.EPERM)
    # Threads are always allowed; processes only with `processes` and without new namespaces.
    test = (ANY_BIT, 1, 0, CLONE_NEW_NAMESPACES) if processes else (ANY_BIT, 0, 1, CLONE_THREAD)
    program += _check_argument("clone", machine, 0, [test, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERROR | errno.EPERM)])
    program += _refuse_call("socket", machine, errno.EACCES)
    for name in MISSING_CALLS:
        program += _refuse_call(name, machine, errno.ENOSYS)
    for name in ATTRIBUTE_CALLS:
        program += _refuse_call(name, machine, errno.ENOTSUP)
    for name in REFUSED_CALLS if processes else (*REFUSED_CALLS, *PROCESS_CALLS):
        program += _refuse_call(name, machine, errno.EPERM)
    return [*program, (RETURN, 0, 0, ALLOW)]


def _refuse_call(name: str, machine: str, error: int) -> List[Instruction]:
    number = _call_number(name, machine)
    return [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | error)] if number >= 0 else []


def _allow_values(name: str, machine: str, index: int, values: Iterable[int], error: int) -> List[Instruction]:
    """Allow the call if its argument has one of the values; deny it otherwise."""
    return _check_argument(name, machine, index, [*_return_for(values, ALLOW), (RETURN, 0, 0, ERROR | error)])


def _refuse_values(name: str, machine: str, index: int, values: Iterable[int]) -> List[Instruction]:
    """Deny the call if its argument has one of the values; allow it otherwise."""
    return _check_argument(name, machine, index, [*_return_for(values, ERROR | errno.EPERM), (RETURN, 0, 0, ALLOW)])


def _return_for(values: Iterable[int], action: int) -> List[Instruction]:
    return [instruction for value in values for instruction in ((EQUAL, 0, 1, value), (RETURN, 0, 0, action))]


def _check_argument(name: str, machine: str, index: int, tests: List[Instruction]) -> List[Instruction]:
    """Decide about the call by tests of the lower 32 bits of an argument, which are all bits that the kernel reads."""
    body = [(LOAD, 0, 0, FIRST_ARGUMENT + ARGUMENT_BYTES * index), *tests]
    return [(EQUAL, 0, len(body), _call_number(name, machine)), *body]


def _call_number(name: str, machine: str) -> int:
    return CALLS[name][list(ARCHITECTURES).index(machine)]
