"""Select locked wheels for this machine, download them, and cache them."""

from __future__ import annotations

import base64
import contextlib
import csv
import functools
import hashlib
import http.client
import os
import re
import shlex
import shutil
import sys
import sysconfig
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from packaging import tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from onnxgate.core.errors import OPTIONAL_TARGET_HINT, UnavailableError
from onnxgate.core.files import read_limited, remove_path, replace_atomically, sha256_of, temporary_folder
from onnxgate.core.subprocesses import CommandRunner, CompletedCommand, find_uv
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, PinnedPackage, Wheel
from onnxgate.project.toml import loads

MAX_RECORD_BYTES = 64 * 2**20


def required_wheels(runtime: LockedRuntime, packages: Sequence[LockedPackage]) -> tuple[LockedPackage, ...]:
    """Return the packages that the runtime pins, each with a wheel for this machine.

    Raises:
        UnavailableError: a package has no wheel for this machine, or is missing from the lock.
    """
    by_pin = {
        (canonicalize_name(package.name), package.version): package
        for package in reversed(packages)  # if there are duplicates, the first one is used
        if package.python == runtime.python
    }
    needed = []
    for pin in runtime.packages:
        name, _, version = pin.partition("==")
        package = by_pin.get((canonicalize_name(name), version))
        if package is None:
            raise UnavailableError(
                f"the lock has no wheel for `{pin}` on Python {runtime.python}", hint="run `onnxgate lock --upgrade`"
            )
        needed.append(package)
    for package in needed:
        if not rank_wheels(package):
            raise UnavailableError(
                f"`{package.name} {package.version}` has no wheel for {sysconfig.get_platform()} "
                f"and Python {package.python}",
                hint=f"run the check on a supported platform{OPTIONAL_TARGET_HINT}",
            )
    return tuple(needed)


def rank_wheels(package: LockedPackage) -> tuple[Wheel, ...]:
    """Return the package's wheels that this machine supports, best match first."""
    ranks = _supported_tags(package.python)
    ranked = [
        (min((ranks[tag] for tag in _wheel_tags(wheel.file) if tag in ranks), default=-1), wheel)
        for wheel in package.wheels
    ]
    return tuple(wheel for rank, wheel in sorted(ranked, key=itemgetter(0)) if rank >= 0)


def find_damaged_file(packages: Path) -> str:
    """Return a file in a `site-packages` folder that differs from the records of its wheels; "" if there is none.

    uv links files from its cache without comparing them with the wheel. A file in several wheels may be
    that of any of them.
    """
    recorded: dict[str, set[str]] = {}
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        try:
            for name, digest in _read_record(record):
                recorded.setdefault(name, set()).add(digest)
        except (OSError, ValueError, csv.Error):
            return record.relative_to(packages).as_posix()
    for name, digests in recorded.items():
        try:
            actual = base64.urlsafe_b64encode(bytes.fromhex(sha256_of(packages / name)))
        except OSError:
            return name
        if actual.decode().rstrip("=") not in digests:
            return name
    return ""


def _read_record(record: Path) -> Iterator[tuple[str, str]]:
    """Yield the path and the SHA-256 in Base64 of each recorded file, except for scripts, which no runtime uses.

    uv replaces the interpreter in scripts. A path outside of the folder is not opened.
    """
    for row in csv.reader(read_limited(record, MAX_RECORD_BYTES).decode().splitlines()):
        parts = PurePath(row[0]).parts if row else ()
        if parts and parts[0] not in ("bin", "Scripts") and ".." not in parts and not PurePath(row[0]).is_absolute():
            algorithm, _, digest = row[1].partition("=")
            if algorithm == "sha256":
                yield row[0], digest.rstrip("=")


def render_requirements(packages: Sequence[LockedPackage]) -> str:
    """Return a requirements file with exact pins and the hashes of all locked wheels."""
    lines = (
        " ".join([f"{package.name}=={package.version}", *(f"--hash=sha256:{wheel.sha256}" for wheel in package.wheels)])
        for package in packages
    )
    return "\n".join(lines) + "\n"


def _wheel_tags(file: str) -> frozenset[tags.Tag]:
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


@functools.cache
def _supported_tags(minor: str) -> dict[tags.Tag, int]:
    """Return the wheel tags that this machine supports, with their ranks; the most specific tag has rank 0."""
    major, _, rest = minor.partition(".")
    version = (int(major), int(rest))
    platforms = list(tags.platform_tags())
    specific = tags.cpython_tags(version, platforms=platforms)
    compatible = tags.compatible_tags(version, f"cp{major}{rest}", platforms=platforms)
    return {tag: rank for rank, tag in enumerate(dict.fromkeys([*specific, *compatible]))}


WHEELS_FOLDER = "wheels"
NPM_FOLDER = "npm"
RESULTS_FOLDER = "results"
COSTS_FOLDER = "costs"
CHUNK_BYTES = 2**20
_SHA256 = re.compile(r"[0-9a-f]{64}")


Downloads = Mapping[str, Callable[[], Iterator[bytes]]]
"""Download functions by wheel file name. Each yields the bytes of its wheel, or raises `OSError`."""


class WheelCache:
    """Cache of wheels in an untrusted folder; each wheel is verified when it is copied."""

    def __init__(self, folder: Path, find: Callable[[Sequence[LockedPackage]], Downloads]) -> None:
        self._folder = folder / WHEELS_FOLDER
        self._find = find

    def gather(self, needed: Sequence[LockedPackage], target: Path) -> bool:
        """Copy one locked wheel per package to `target`, downloading missing ones. Return whether all were copied."""
        missing = [package for package in needed if not self._copy_cached(package, target)]
        downloads = self._find(missing) if missing else {}
        return all(self._download(package, downloads, target) for package in missing)

    def _copy_cached(self, package: LockedPackage, target: Path) -> bool:
        return any(
            copy_verified(_read_chunks(file), target / wheel.file, wheel.sha256)
            for wheel in rank_wheels(package)
            if (file := _cached_path(self._folder, wheel)) is not None
        )

    def _download(self, package: LockedPackage, downloads: Downloads, target: Path) -> bool:
        wheel = next((wheel for wheel in rank_wheels(package) if wheel.file in downloads), None)
        cached = _cached_path(self._folder, wheel) if wheel else None
        if wheel is None or cached is None:
            return False
        if not copy_verified(downloads[wheel.file](), target / wheel.file, wheel.sha256):
            return False
        with contextlib.suppress(OSError):  # for example a full disk: the wheel is downloaded again next time
            cached.parent.mkdir(parents=True, exist_ok=True)
            with replace_atomically(cached) as scratch:
                shutil.copyfile(target / wheel.file, scratch)
        return True


def _cached_path(folder: Path, wheel: Wheel) -> Path | None:
    """Return the path of a cached wheel; None if its file name or hash is invalid.

    packaging 24 accepts file names that contain a path.
    """
    plain = Path(wheel.file).name == wheel.file and wheel.file.endswith(".whl") and "\\" not in wheel.file
    return folder / wheel.sha256 / wheel.file if plain and _SHA256.fullmatch(wheel.sha256) else None


def copy_verified(source: Iterator[bytes], target: Path, sha256: str) -> bool:
    """Copy the bytes and return whether they match the hash. Remove `target` if they do not match or cannot be read."""
    digest = hashlib.sha256()
    try:
        with target.open("wb") as file:
            for chunk in source:
                digest.update(chunk)
                file.write(chunk)
    except OSError:
        target.unlink(missing_ok=True)
        return False
    if digest.hexdigest() != sha256:
        target.unlink()
    return digest.hexdigest() == sha256


def _read_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file. Symbolic links are rejected, and pipes do not block."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def remove_unlocked(folder: Path, packages: Iterable[PinnedPackage]) -> list[str]:
    """Remove cache entries that are not in the lock. Return the names of wheels that do not match their locked hash.

    Wheels of other locks are removed, but not returned. npm's cache is kept, since npm verifies each package. The
    folders of results and costs are also kept.
    """
    locked = {
        wheel.sha256: wheel for package in packages if isinstance(package, LockedPackage) for wheel in package.wheels
    }
    if folder.is_symlink() or not folder.is_dir():
        remove_path(folder)
        return []
    for entry in sorted(folder.iterdir()):
        is_cache = entry.name in (WHEELS_FOLDER, NPM_FOLDER, RESULTS_FOLDER, COSTS_FOLDER)
        if not is_cache or entry.is_symlink() or not entry.is_dir():
            remove_path(entry)
    for parent, folders, files in os.walk(folder / NPM_FOLDER):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink():  # npm would write through it to files outside the folder
                path.unlink()
    cached = _cached_wheels(folder / WHEELS_FOLDER)
    return [entry.name for entry in cached if _is_invalid(entry, locked.get(entry.parent.name))]


def _cached_wheels(folder: Path) -> Iterator[Path]:
    """Yield the file in each folder that is named after a hash and contains one entry; remove everything else."""
    for home in sorted(folder.iterdir()) if folder.is_dir() else ():
        entries = sorted(home.iterdir()) if home.is_dir() and not home.is_symlink() else []
        if len(entries) == 1 and _SHA256.fullmatch(home.name):
            yield entries[0]
        else:
            remove_path(home)


def _is_invalid(entry: Path, wheel: Wheel | None) -> bool:
    """Remove a cached wheel unless it matches the locked wheel. Return whether it is locked but does not match."""
    if wheel is not None and entry.name == wheel.file:
        digest = hashlib.sha256()
        with contextlib.suppress(OSError):
            for chunk in _read_chunks(entry):
                digest.update(chunk)
            if digest.hexdigest() == wheel.sha256:
                return False
    remove_path(entry.parent)
    return wheel is not None


def run_uv(commands: CommandRunner, arguments: Sequence[str], *, timeout_s: float, stdin: str = "") -> CompletedCommand:
    """Run uv with the user's settings. Raises `UnavailableError` if it is not installed."""
    uv = find_uv()
    commands.executed.append(shlex.join(["uv", *arguments]))
    return commands.run([uv, *arguments], timeout_s=timeout_s, stdin=stdin)


LOCATE_TIMEOUT_S = 120
DOWNLOAD_TIMEOUT_S = 30
_LOCATE_COMMAND = (
    *("pip", "compile", "--quiet", "--no-deps", "--no-header", "--only-binary", ":all:"),
    *("--universal", "--format", "pylock.toml", "--python", sys.executable),
)


def download(url: str, commands: CommandRunner) -> Iterator[bytes]:
    """Yield the bytes at a URL. Stop if `commands` is closed.

    Raises:
        OSError: the download fails.
    """
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response:
            while chunk := response.read(CHUNK_BYTES):
                commands.require_open()
                yield chunk
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error


def find_downloads(commands: CommandRunner, packages: Sequence[LockedPackage]) -> Downloads:
    """Return functions that download the wheels of packages for one Python version.

    Wheels without an HTTP URL are omitted.
    """
    with temporary_folder() as scratch:
        output = Path(scratch) / "pylock.onnxgate.toml"
        requirements = "".join(f"{package.name}=={package.version}\n" for package in packages)
        arguments = [*_LOCATE_COMMAND, "--python-version", packages[0].python, "--output-file", str(output), "-"]
        ended = run_uv(commands, arguments, timeout_s=LOCATE_TIMEOUT_S, stdin=requirements)
        if ended.status != 0 or not output.exists():
            return {}
        solution = loads(output.read_text(encoding="utf-8")).get("packages", ())
    urls = (str(wheel.get("url", "")) for package in solution for wheel in package.get("wheels", ()))
    return {
        unquote(urlsplit(url).path.rpartition("/")[2]): functools.partial(download, url, commands)
        for url in urls
        if re.match(r"https?://", url)
    }
