"""Find values in a lock that onnxgate never writes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import chain

from packaging.version import InvalidVersion, Version

from onnxgate.project.engines import (
    REQUIRED_DEPENDENCIES,
    extension_problem,
    is_library,
    is_satisfied,
    package_name,
    runs_on_node,
)
from onnxgate.project.lock.types import Lock, LockedModel, LockedPackage, LockedRuntime


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


NPM_INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_FORMATS: dict[str, Callable[[str], object]] = {
    "normalized package name": re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch,
    "version": _is_version,
    "Python minor version": re.compile(r"[0-9]{1,3}\.[0-9]{1,3}").fullmatch,
    "SHA-512 integrity hash": NPM_INTEGRITY.fullmatch,
    "SHA-256": re.compile(r"[0-9a-f]{64}").fullmatch,
}
"""Maps the name of each format to a function that checks whether a text has this format."""


def _check_format(text: str, name: str) -> Iterator[str]:
    if not _FORMATS[name](text):
        yield f"`{text}` is not a valid {name}"


def _check_release(name: str, version: str) -> Iterator[str]:
    yield from _check_format(name, "normalized package name")
    yield from _check_format(version, "version")


def find_lock_problems(lock: Lock) -> Iterator[str]:
    """Yield a message for each value that onnxgate never writes."""
    for name, target in lock.targets.items():
        for runtime in target.runtimes:
            yield from (f"target `{name}`, {runtime.name}: {problem}" for problem in _runtime_problems(runtime))
    if lock.toolchain is not None:
        problems = _check_format(lock.toolchain.python, "Python minor version")
        yield from (f"toolchain: {problem}" for problem in problems)
    for path, model in lock.models.items():
        yield from (f"model `{path}`: {problem}" for problem in _model_problems(model))
    for package in lock.packages:
        yield from (f"package `{package.name}`: {problem}" for problem in _package_problems(package))
    for npm in lock.npm:
        problems = chain(_check_release(npm.name, npm.version), _check_format(npm.integrity, "SHA-512 integrity hash"))
        yield from (f"npm package `{npm.name}`: {problem}" for problem in problems)


def _runtime_problems(runtime: LockedRuntime) -> Iterator[str]:
    yield from _check_release(runtime.engine, runtime.release)
    names = [pin.partition("==")[0] for pin in runtime.packages]
    yield from (f"`{name}` is pinned more than once" for name in sorted({n for n in names if names.count(n) > 1}))
    for pin in runtime.packages:
        name, _, version = pin.partition("==")
        if any(_check_release(name, version)):
            yield f"`{pin}` does not pin an exact version"
    pins = dict(pin.split("==", 1) for pin in runtime.packages if "==" in pin)
    for text in runtime.extensions:
        if problem := extension_problem(text):
            yield f"extension `{text}`: {problem}"
        elif not is_library(text) and not is_satisfied(text, pins.get(package_name(text), "")):
            yield f"extension `{text}` is not pinned in `packages`"
    if runtime.environment:
        return
    if f"{runtime.engine}=={runtime.release}" not in runtime.packages:  # nothing else is installed
        yield f"`packages` does not contain `{runtime.engine}=={runtime.release}`"
    needed = REQUIRED_DEPENDENCIES.get(runtime.engine, ())
    yield from (f"`{name}` is not pinned in `packages`" for name in needed if name not in names)
    if not runs_on_node(runtime.engine):
        yield from _check_format(runtime.python, "Python minor version")
    elif runtime.python:
        yield f"`{runtime.engine}` runs without Python, but `python` is `{runtime.python}`"


def _model_problems(model: LockedModel) -> Iterator[str]:
    yield from _check_format(model.sha256, "SHA-256")
    for data in model.external:
        yield from (f"data file `{data.location}`: {problem}" for problem in _check_format(data.sha256, "SHA-256"))
    for output, measured in model.tolerance.items():
        for what, value in (("noise", measured.noise), ("bound", measured.bound)):
            if not math.isfinite(value) or value < 0:
                yield f"the {what} of output `{output}` is {value}"
    for output, quality in model.quantization.items():
        limits = (("sqnr-db", quality.sqnr_db, 200), ("cosine", quality.cosine, 1), ("top1", quality.top1, 1))
        for metric, value, limit in limits:
            if not -limit <= value <= limit:
                yield f"the {metric} of output `{output}` is {value}"


def _package_problems(package: LockedPackage) -> Iterator[str]:
    yield from _check_release(package.name, package.version)
    yield from _check_format(package.python, "Python minor version")
    for wheel in package.wheels:
        if not wheel.file.endswith(".whl") or "/" in wheel.file or "\\" in wheel.file:
            yield f"`{wheel.file}` is not a wheel file name"
        yield from (f"`{wheel.file}`: {problem}" for problem in _check_format(wheel.sha256, "SHA-256"))
