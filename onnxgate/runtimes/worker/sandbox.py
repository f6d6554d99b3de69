"""Sandbox of a worker, applied before it imports an engine.

The pool writes the permissions to a file: `reads` and `folder` (paths), `all_reads`, `processes` and `devices`
(booleans), `file_mib` (a number, or null).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Tuple

OPEN_FILES = 4096
EXTRA_TASKS = 512
NO_NEW_PRIVILEGES = 38
CAPABILITIES_VERSION = 0x20080522
KEPT_CAPABILITIES = 0b110
"""Capabilities to ignore a file's owner and mode: a worker that has them may need them for the files of a job."""

SYSTEM_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/home/linuxbrew/.linuxbrew", "/run/current-system", "/run/opengl-driver", "/proc", "/sys"),
)
"""Programs and libraries, and the kernel's files; private files of other processes remain unreadable."""
ETC_FILES = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
    *("locale.alias", "locale.conf", "nsswitch.conf", "passwd", "group", "os-release", "lsb-release", "debian_version"),
    *("ssl/openssl.cnf", "pki/tls/openssl.cnf", "OpenCL", "vulkan", "glvnd"),
)
"""Readable files and folders below `/etc`."""
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ACCELERATORS = ("nvidia", "dri", "kfd", "dxg", "accel", "shm")
"""Prefixes of entries of `/dev` that runtimes compute with."""
PYTHON_SUBFOLDERS = ("bin", "lib", "lib64", "libexec", "share", "pyvenv.cfg")


def apply_sandbox(file: str) -> List[str]:
    """Apply the file's permissions, and return the restrictions that this system does not support, as text.

    Call it before any thread is started.
    """
    with open(file, encoding="utf-8") as opened:
        needs = json.load(opened)
    os.umask(0o077)
    if sys.platform == "win32":
        return ["files, network and processes are not limited on Windows"]
    _set_resource_limits(needs)
    if not sys.platform.startswith("linux"):
        return ["files, network and processes are not limited on this system"]
    steps: Tuple[Tuple[str, Callable[[Dict[str, Any]], None]], ...] = (
        ("privileges", _drop_privileges),
        ("files", _limit_files),
        ("network and processes", _limit_system_calls),
    )
    return [note for what, step in steps for note in _try_step(what, step, needs)]


def _try_step(what: str, step: Callable[[Dict[str, Any]], None], needs: Dict[str, Any]) -> List[str]:
    try:
        step(needs)
    except (OSError, ImportError, AttributeError) as error:
        return ["%s are not limited: %s" % (what, getattr(error, "strerror", None) or error)]
    return []


def _set_resource_limits(needs: Dict[str, Any]) -> None:
    import resource

    bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES}
    if needs["file_mib"] is not None:
        bounds[resource.RLIMIT_FSIZE] = needs["file_mib"] * 2**20
    if needs["processes"] and sys.platform.startswith("linux"):
        bounds[resource.RLIMIT_NPROC] = _count_tasks() + EXTRA_TASKS
    for kind, bound in bounds.items():
        now = resource.getrlimit(kind)
        soft, hard = (bound if each == resource.RLIM_INFINITY else min(each, bound) for each in now)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (OSError, ValueError):  # macOS has its own upper bounds
            continue


def _count_tasks() -> int:
    """Return the number of tasks on the whole machine, an upper bound for any user."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


def _drop_privileges(_: Dict[str, Any]) -> None:
    """Deny new privileges to programs started later, and drop root's capabilities except file access."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, *(ctypes.c_ulong(each) for each in (1, 0, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
    had = (ctypes.c_uint32 * 6)()
    if libc.capget(header, had) == 0 and any(had):
        kept = [had[index] & KEPT_CAPABILITIES if index < 2 else 0 for index in range(6)]  # none is inheritable
        libc.capset(header, (ctypes.c_uint32 * 6)(*kept))


def _limit_files(needs: Dict[str, Any]) -> None:
    from . import linux_sandbox

    if not linux_sandbox.landlock_version():
        raise OSError(0, "this kernel has no Landlock, or does not let it be used")
    devices = [*PLAIN_DEVICES, *(_accelerator_devices() if needs["devices"] else ())]
    reads = [*SYSTEM_PATHS, *("/etc/" + etc_file for etc_file in ETC_FILES), *_python_paths(), *needs["reads"]]
    linux_sandbox.restrict_files(reads, [needs["folder"], *devices], all_reads=needs["all_reads"])


def _limit_system_calls(needs: Dict[str, Any]) -> None:
    from . import linux_sandbox

    linux_sandbox.restrict_system_calls(processes=needs["processes"])


def _accelerator_devices() -> List[str]:
    return [os.path.join("/dev", name) for name in os.listdir("/dev") if name.startswith(ACCELERATORS)]


def _python_paths() -> Iterator[str]:
    """Yield the paths of the interpreter, its modules and its libraries."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    yield from (os.path.join(prefix, name) for prefix in sorted(prefixes) for name in PYTHON_SUBFOLDERS)
    yield from (entry for entry in sys.path if os.path.isabs(entry))
    yield from (entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isabs(entry))
    yield os.path.dirname(os.path.abspath(__file__))


def exec_sandboxed(file: str, argv: List[str]) -> None:
    """Replace this process by the program, in the sandbox, after reporting restrictions that could not be applied."""
    notes = apply_sandbox(file)
    if notes:
        os.write(1, json.dumps({"id": 0, "phase": "rights", "notes": notes}).encode() + b"\n")
    os.execv(argv[0], argv)
