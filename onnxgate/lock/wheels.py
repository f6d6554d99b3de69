"""Which wheels of a release are locked: one for each platform, for one Python."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from onnxgate.lock.types import Wheel

Rank = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """One system and architecture that locks are made for."""

    system: str
    machine: str


PLATFORMS = (
    Platform("linux", "x86_64"),
    Platform("linux", "aarch64"),
    Platform("macosx", "arm64"),
    Platform("macosx", "x86_64"),
    Platform("win", "amd64"),
)

_PLATFORM = re.compile(r"(?P<system>[a-z]+?)(?P<year>1|2010|2014)?(?:_(?P<major>\d+)_(?P<minor>\d+))?_(?P<machine>.+)")
_GLIBC = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}  # Source: PEP 600
_UNIVERSAL = {"arm64": ("universal2",), "x86_64": ("universal2", "intel", "universal")}


def locked_wheels(files: Mapping[str, str], python: str) -> tuple[Wheel, ...]:
    """
    The wheels for one Python, by file name: of several that fit a platform, the one that fits most systems.

    `files` maps file names to sha256. A wheel for musl is not locked: Linux means glibc.
    """
    chosen = {_best(files, python, platform) for platform in PLATFORMS} - {""}
    return tuple(Wheel(file=file, sha256=files[file]) for file in sorted(chosen))


def _best(files: Iterable[str], python: str, platform: Platform) -> str:
    ranked = [(rank, file) for file in files if (rank := _rank(file, python, platform)) is not None]
    return min(ranked)[1] if ranked else ""


def _rank(file: str, python: str, platform: Platform) -> Rank | None:
    """How well a wheel fits, smaller is better; None where it does not."""
    try:
        _, _, build, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    newest_build = -build[0] if build else 0
    return min(((*rank, newest_build) for rank in _tag_ranks(tags, python, platform)), default=None)


def _tag_ranks(tags: Iterable[Tag], python: str, platform: Platform) -> Iterator[Rank]:
    order = _interpreters(python)
    for tag in tags:
        place = order.get((tag.interpreter, tag.abi))
        fit = _platform_rank(tag.platform, platform)
        if place is not None and fit is not None:
            yield (place, *fit)


@functools.cache
def _interpreters(python: str) -> dict[tuple[str, str], int]:
    """Pairs of interpreter and ABI that CPython takes, best first."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    own = cpython_tags((major, minor), abis=[interpreter], platforms=["any"])
    rest = compatible_tags((major, minor), interpreter, platforms=["any"])
    pairs = dict.fromkeys((tag.interpreter, tag.abi) for tag in (*own, *rest))
    return {pair: place for place, pair in enumerate(pairs)}


def _platform_rank(text: str, platform: Platform) -> Rank | None:
    """Built for this machine alone before built for several, then by the oldest system that it runs on."""
    if text == "any":
        return (2, 0, 0)
    found = _PLATFORM.fullmatch(text)
    if found is None or _system(found["system"]) != platform.system:
        return None
    universal = found["machine"] in _UNIVERSAL.get(platform.machine, ()) and platform.system == "macosx"
    if found["machine"] != platform.machine and not universal:
        return None
    version = _GLIBC.get(found["year"] or "") or (int(found["major"] or 0), int(found["minor"] or 0))
    return (int(universal), *version)


def _system(name: str) -> str:
    return "linux" if name == "manylinux" else name
