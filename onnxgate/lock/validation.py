"""What the types of a lock cannot say: which of its values mean something."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from onnxgate.config.engines import runs_on_node
from onnxgate.config.extensions import extension_problem, is_library, package_name, satisfied
from onnxgate.lock.companions import NEEDED
from onnxgate.lock.types import Lock, LockedModel, LockedPackage, LockedRuntime, NpmPackage

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PYTHON = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def lock_problems(lock: Lock) -> Iterator[str]:
    """All values that no onnxgate writes, a sentence each."""
    for name, target in lock.targets.items():
        for runtime in target.runtimes:
            yield from (f"target `{name}`, {runtime.name}: {problem}" for problem in _runtime(runtime))
    if lock.toolchain is not None:
        yield from (f"toolchain: {problem}" for problem in _python(lock.toolchain.python))
    for path, model in lock.models.items():
        yield from (f"model `{path}`: {problem}" for problem in _model(model))
    for package in lock.packages:
        yield from (f"package `{package.name}`: {problem}" for problem in _package(package))
    for each in lock.npm:
        yield from (f"package `{each.name}` of npm: {problem}" for problem in _npm(each))


def _runtime(runtime: LockedRuntime) -> Iterator[str]:
    yield from _name(runtime.engine)
    yield from _version(runtime.release)
    yield from _pins(runtime)
    yield from _extensions(runtime)
    if runtime.environment:
        return
    yield from _own_pins(runtime)
    if not runs_on_node(runtime.engine):
        yield from _python(runtime.python)
    elif runtime.python:
        yield f"`{runtime.engine}` has no Python, and `{runtime.python}` is said"


def _pins(runtime: LockedRuntime) -> Iterator[str]:
    names = _names(runtime)
    repeated = sorted({each for each in names if names.count(each) > 1})
    yield from (f"`{name}` is pinned more than once" for name in repeated)
    for pin in runtime.packages:
        name, _, version = pin.partition("==")
        if [*_name(name), *_version(version)]:
            yield f"`{pin}` is no exact pin"


def _own_pins(runtime: LockedRuntime) -> Iterator[str]:
    """A row must run what it says: a locked environment is made of the pins alone."""
    own = f"{runtime.engine}=={runtime.release}"
    if own not in runtime.packages:
        yield f"its packages do not have `{own}`"
    needed = NEEDED.get(runtime.engine, ())
    yield from (f"its packages do not pin `{name}`" for name in needed if name not in _names(runtime))


def _extensions(runtime: LockedRuntime) -> Iterator[str]:
    """Each is a library, or a requirement that one of the pins satisfies."""
    pins = dict(pin.split("==", 1) for pin in runtime.packages if "==" in pin)
    for text in runtime.extensions:
        if problem := extension_problem(text):
            yield f"extension `{text}`: {problem}"
        elif not is_library(text) and not satisfied(text, pins.get(package_name(text), "")):
            yield f"its packages do not pin its extension `{text}`"


def _names(runtime: LockedRuntime) -> list[str]:
    return [pin.partition("==")[0] for pin in runtime.packages]


def _model(model: LockedModel) -> Iterator[str]:
    yield from _sha256(model.sha256)
    for data in model.external:
        yield from (f"data file `{data.location}`: {problem}" for problem in _sha256(data.sha256))
    for output, measured in model.tolerance.items():
        for what, value in (("noise", measured.noise), ("bound", measured.bound)):
            if not math.isfinite(value) or value < 0:
                yield f"the {what} of output `{output}` is {value}"
    for output, kept in model.quantization.items():
        for what, value, most in (("sqnr-db", kept.sqnr_db, 200), ("cosine", kept.cosine, 1), ("top1", kept.top1, 1)):
            if not -most <= value <= most:
                yield f"the {what} of output `{output}` is {value}"


def _package(package: LockedPackage) -> Iterator[str]:
    yield from _name(package.name)
    yield from _version(package.version)
    yield from _python(package.python)
    for wheel in package.wheels:
        if not wheel.file.endswith(".whl") or "/" in wheel.file or "\\" in wheel.file:
            yield f"`{wheel.file}` is no name of a wheel"
        yield from (f"`{wheel.file}`: {problem}" for problem in _sha256(wheel.sha256))


def _npm(package: NpmPackage) -> Iterator[str]:
    yield from _name(package.name)
    yield from _version(package.version)
    if not INTEGRITY.fullmatch(package.integrity):
        yield f"`{package.integrity}` is no integrity by sha512"


def _name(text: str) -> Iterator[str]:
    if not _NAME.fullmatch(text):
        yield f"`{text}` is no normalised name of a package"


def _version(text: str) -> Iterator[str]:
    try:
        Version(text)
    except InvalidVersion:
        yield f"`{text}` is no version"


def _python(text: str) -> Iterator[str]:
    if not _PYTHON.fullmatch(text):
        yield f"`{text}` is no minor version of Python"


def _sha256(text: str) -> Iterator[str]:
    if not _SHA256.fullmatch(text):
        yield f"`{text}` is no sha256"
