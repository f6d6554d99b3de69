"""Sandbox of a worker, applied before it imports an engine.

The pool writes the permissions to a file: `reads`, `folder` and `private` (paths; private folders are not readable as
parts of system folders), `all_reads`, `processes` and `devices` (booleans), `file_mib` (a number).
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Iterable, Iterator, List

if sys.platform != "win32":
    import resource

OPEN_FILES = 4096
EXTRA_TASKS = 512

SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")
SYSTEM_PATHS = (
    *(
        parent + name
        for parent in ("/", "/usr/", "/usr/local/")
        for name in SYSTEM_FOLDERS
        if parent + name != "/share"
    ),
    *("/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew", "/run/current-system", "/run/opengl-driver"),
    *("/usr/local/ssl/openssl.cnf", "/proc", "/sys"),
)
"""Readable folders with programs, libraries and kernel files. Private files of other processes remain unreadable.

`/opt`, `/usr/src` and other folders are not readable, since they may contain a checkout.
"""
VENDOR_FOLDERS = {
    "/opt": ("amdgpu", "cray", "cuda", "intel", "nvidia", "rh", "rocm", "spack"),
    "/usr/local": ("cuda", "nvidia"),
}
"""Prefixes of readable folders with libraries of devices and of interpreters."""
ETC_FILES = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "localtime", "timezone"),
    *("locale.alias", "locale.conf", "nsswitch.conf", "passwd", "group", "os-release", "lsb-release", "debian_version"),
    *("ssl/openssl.cnf", "pki/tls/openssl.cnf", "OpenCL", "vulkan", "glvnd"),
)
"""Readable files and folders below `/etc`."""
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ACCELERATORS = ("nvidia", "dri", "kfd", "dxg", "accel", "shm")
"""Prefixes of accelerator devices in `/dev`."""
PYTHON_SUBFOLDERS = ("bin", "lib", "lib64", "libexec", "share", "pyvenv.cfg")
LIBRARY_NAME = re.compile(r"\.(?:so|dylib|dll|pyd)(?:\.[\d.]+)?$")
LIBRARY_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
"""File names and first bytes of shared libraries. Source: elf.h, mach-o/loader.h, mach-o/fat.h, PE format."""


def apply_sandbox(file: str) -> List[str]:
    """Apply the permissions in the file. Return messages for restrictions that could not be applied.

    Must be called before any thread is started.
    """
    with open(file, encoding="utf-8") as opened:
        needs = json.load(opened)
    os.umask(0o077)
    if sys.platform == "win32":
        return ["access to files, network and processes is not restricted on Windows"]
    _set_resource_limits(needs)
    if not sys.platform.startswith("linux"):
        return ["access to files, network and processes is not restricted on this platform"]
    notes = []
    for subject in ("privileges", "files", "network and processes"):
        try:
            _limit_on_linux(subject, needs)
        except (OSError, ImportError, AttributeError) as error:
            notes.append("%s could not be restricted: %s" % (subject, getattr(error, "strerror", None) or error))
    return notes


def _limit_on_linux(subject: str, needs: Dict[str, Any]) -> None:
    from . import linux_sandbox, system_calls  # these need ctypes, which is missing from some Python builds

    if subject == "privileges":
        linux_sandbox.drop_privileges()
    elif subject == "files":
        if not linux_sandbox.landlock_version():
            raise OSError(0, "Landlock is not available")
        devices = os.listdir("/dev") if needs["devices"] else []
        accelerators = [name for name in devices if name.startswith(ACCELERATORS)]
        writes = [needs["folder"], *PLAIN_DEVICES, *(os.path.join("/dev", name) for name in accelerators)]
        system = [*SYSTEM_PATHS, *_vendor_paths(), *_linker_paths(), *_python_paths()]
        system += _library_paths(needs["private"])
        reads = [*exclude_private(system, needs["private"]), *("/etc/" + name for name in ETC_FILES), *needs["reads"]]
        # Python lists a folder before it imports modules from it. The standard library may contain a private folder.
        lists = ["/"] if needs["all_reads"] else [os.path.dirname(os.__file__)]
        linux_sandbox.restrict_files(reads, writes, lists)
    else:
        system_calls.restrict_system_calls(processes=needs["processes"], devices=needs["devices"])


def _set_resource_limits(needs: Dict[str, Any]) -> None:
    file_bytes = needs["file_mib"] * 2**20
    bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: OPEN_FILES, resource.RLIMIT_FSIZE: file_bytes}
    if needs["processes"] and sys.platform.startswith("linux"):
        with open("/proc/loadavg", encoding="ascii") as file:
            tasks = int(file.read().split()[3].partition("/")[2])  # of the whole machine: an upper bound for every user
        bounds[resource.RLIMIT_NPROC] = tasks + EXTRA_TASKS
    for kind, bound in bounds.items():
        now = resource.getrlimit(kind)
        soft, hard = (bound if limit == resource.RLIM_INFINITY else min(limit, bound) for limit in now)
        try:
            resource.setrlimit(kind, (soft, hard))
        except (OSError, ValueError):  # macOS has its own upper limits
            continue


def _vendor_paths() -> Iterator[str]:
    for parent, prefixes in VENDOR_FOLDERS.items():
        yield from (os.path.join(parent, name) for name in _list_folder(parent) if name.startswith(prefixes))


def _linker_paths() -> Iterator[str]:
    """Yield the folders of libraries in the settings of the dynamic linker."""
    folder = "/etc/ld.so.conf.d"
    for file in ("/etc/ld.so.conf", *(os.path.join(folder, name) for name in _list_folder(folder))):
        try:
            with open(file, encoding="utf-8", errors="surrogateescape") as lines:
                text = "".join(line.partition("#")[0] + "\n" for line in lines)
        except OSError:
            continue
        yield from (entry for entry in re.split(r"[\s:,]+", text) if entry.startswith("/"))


def _list_folder(path: str) -> List[str]:
    """Return the names in a folder; none if it does not exist or this user cannot list it."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def exclude_private(paths: Iterable[str], private: List[str]) -> Iterator[str]:
    """Yield the paths. Instead of a path that contains private folders, yield the other files and folders in it.

    If the path itself is a private folder, yield the files and folders whose names are not hidden.
    """
    for path in paths:
        real = os.path.realpath(path)
        is_private = real in private
        if not is_private and not any(_is_in(folder, real) for folder in private):
            yield path
            continue
        for name in _list_folder(real):
            child = os.path.join(real, name)
            target = os.path.realpath(child)
            if os.path.islink(child):  # its target is readable if its own path is
                is_excluded = any(_is_in(target, folder) or _is_in(folder, target) for folder in private)
            else:
                is_excluded = child in private or (is_private and name.startswith("."))
            if not is_excluded:
                yield from exclude_private([child], private)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _python_paths() -> Iterator[str]:
    """Yield the paths of the interpreter, its modules and libraries."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, *_environment_prefixes()}
    yield from (os.path.join(prefix, name) for prefix in sorted(prefixes) for name in PYTHON_SUBFOLDERS)
    yield os.path.dirname(os.__file__)  # not `sys.path`, to which packages can add other folders
    yield os.path.dirname(os.path.abspath(__file__))


def list_libraries(folder: str) -> Iterator[str]:
    """Yield the shared libraries in a folder, without links of such a name that lead to other files, such as keys."""
    for name in filter(LIBRARY_NAME.search, _list_folder(folder)):
        if has_library_magic(os.path.join(folder, name)):
            yield os.path.join(folder, name)


def has_library_magic(path: str) -> bool:
    """Return whether a file begins like a shared library."""
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            return file.read(4).startswith(LIBRARY_MAGIC)
    except OSError:
        return False


def _library_paths(private: List[str]) -> Iterator[str]:
    """Yield the folders in `LD_LIBRARY_PATH`; of a private folder, such as the repository, only its libraries."""
    for entry in filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if os.path.realpath(entry) not in private:
            yield entry
        else:
            yield from list_libraries(entry)


def _environment_prefixes() -> Iterator[str]:
    """Yield the folder of the virtual environment, which `sys.prefix` may not contain before `site` is imported."""
    folder = os.path.dirname(os.path.abspath(sys.executable))
    yield from (it for it in (folder, os.path.dirname(folder)) if os.path.isfile(os.path.join(it, "pyvenv.cfg")))


def exec_sandboxed(file: str, argv: List[str]) -> None:
    """Apply the sandbox, report restrictions that could not be applied, and replace this process with the program."""
    notes = apply_sandbox(file)
    if notes:
        os.write(1, json.dumps({"id": 0, "phase": "rights", "notes": notes}).encode() + b"\n")
    os.execv(argv[0], argv)
