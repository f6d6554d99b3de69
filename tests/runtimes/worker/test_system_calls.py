"""The filter of system calls decides as documented on both architectures."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there are no system calls to filter", allow_module_level=True)

from onnxgate.runtimes.worker import system_calls
from onnxgate.runtimes.worker.system_calls import ARCHITECTURES, CALLS

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
READ = {"x86_64": 0, "aarch64": 63}
FORK, THREAD = 0x11, 0x10F00  # flags of `clone`
NEW_USER_NAMESPACE = 0x10000000
ALLOWED = 0


def decide(
    machine: str, call: int, *arguments: int, processes: bool = False, devices: bool = False, architecture: int = 0
) -> int:
    """Run the filter. Return the error number of the call; 0 if it is allowed."""
    program = system_calls.build_filter(machine, processes=processes, devices=devices)
    values = {system_calls.NUMBER: call, system_calls.ARCHITECTURE: architecture or ARCHITECTURES[machine]}
    for index in range(6):
        values[system_calls.FIRST_ARGUMENT + 8 * index] = arguments[index] if index < len(arguments) else 0
    accumulator = position = 0
    while True:
        code, if_true, if_false, operand = program[position]
        position += 1
        if code == system_calls.RETURN:
            return ALLOWED if operand == system_calls.ALLOW else operand & 0xFFFF
        if code == system_calls.LOAD:
            accumulator = values[operand]
            continue
        tests = {
            system_calls.EQUAL: accumulator == operand,
            system_calls.ABOVE: accumulator > operand,
            system_calls.ANY_BIT: bool(accumulator & operand),
        }
        position += if_true if tests[code] else if_false


def number(name: str, machine: str) -> int:
    """Return the number of a system call."""
    return CALLS[name][list(ARCHITECTURES).index(machine)]


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    """A wrong number would deny another system call."""
    if not HEADERS[machine].exists():
        pytest.skip("needs the headers of the kernel")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    numbers = {name: int(value) for name, value in defined}
    expected = {name: numbers.get(name, -1) for name in CALLS}

    assert {name: number(name, machine) for name in CALLS} == expected


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_unneeded_calls_are_denied(machine: str) -> None:
    """All listed calls are denied, except for those that an engine needs, which are checked by their arguments."""
    checked = {*system_calls.CHECKED_CALLS, "seccomp"}
    denied = {name for name in CALLS if number(name, machine) >= 0} - checked

    assert {name for name in denied if decide(machine, number(name, machine)) == ALLOWED} == set()
    assert decide(machine, READ[machine]) == ALLOWED


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_unknown_calls_do_not_exist(machine: str) -> None:
    """Calls of newer kernels, such as `fchmodat2`, and of other ABIs are denied."""
    fchmodat2, x32_read, foreign = 452, 0x40000000, 0x40000003

    assert decide(machine, fchmodat2) == errno.ENOSYS
    assert decide(machine, x32_read) == errno.ENOSYS
    assert decide(machine, READ[machine], architecture=foreign) == errno.EPERM


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize("processes", [False, True])
def test_calls_on_the_own_process_are_allowed(machine: str, *, processes: bool) -> None:
    """Limits, scheduling and signals are allowed for the own process only, also in a benchmark."""
    own, other = os.getpid(), os.getppid()
    for name in system_calls.OWN_PROCESS_CALLS:
        decisions = [decide(machine, number(name, machine), process) for process in (0, own, other)]
        assert decisions == [ALLOWED, ALLOWED, errno.EPERM], name
    for name in system_calls.SELF_SIGNAL_CALLS:
        targets = (own, other, 0, 2**32 - 1)
        decisions = [decide(machine, number(name, machine), process, processes=processes) for process in targets]
        assert decisions == [ALLOWED, errno.EPERM, errno.EPERM, errno.EPERM], name
    for name in ("tkill", "rt_sigqueueinfo", "pidfd_open", "pidfd_send_signal"):
        assert decide(machine, number(name, machine), processes=processes) == errno.EPERM, name


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_processes_need_permission(machine: str) -> None:
    """Threads are always allowed, processes for a benchmark, and namespaces never."""
    clone = number("clone", machine)

    assert [decide(machine, clone, flags) for flags in (THREAD, FORK)] == [ALLOWED, errno.EPERM]
    assert decide(machine, clone, FORK, processes=True) == ALLOWED
    assert decide(machine, clone, FORK | NEW_USER_NAMESPACE, processes=True) == errno.EPERM


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_commands_on_files_are_checked(machine: str) -> None:
    """Without devices, only a few commands are allowed; commands that change files or terminals never are."""
    ioctl, fcntl = number("ioctl", machine), number("fcntl", machine)
    get_settings, push_input, set_flags, of_a_gpu = 0x5401, 0x5412, 0x40086602, 0xC020462A
    commands = (get_settings, push_input, set_flags, of_a_gpu)
    duplicate, set_owner, set_lease = 1030, 8, 1024

    assert [decide(machine, ioctl, 0, it) for it in commands] == [ALLOWED, *[errno.ENOTTY] * 3]
    with_devices = [decide(machine, ioctl, 0, it, devices=True) for it in commands]
    assert with_devices == [ALLOWED, errno.EPERM, errno.EPERM, ALLOWED]
    fcntl_commands = [decide(machine, fcntl, 0, it) for it in (duplicate, set_owner, set_lease)]
    assert fcntl_commands == [ALLOWED, errno.EPERM, errno.EPERM]
