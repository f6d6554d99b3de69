"""Engines: names, dependencies, and the requirements and extensions that a target may name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from onnxgate.core.spelling import join_quoted, suggest_spelling
from onnxgate.project.lock.types import LockedRuntime

ONNXRUNTIME = "onnxruntime"
ENGINES = (ONNXRUNTIME, "onnxruntime-web", "openvino", "tract", "onnx", "opencv-python-headless")
ONNXRUNTIME_BUILDS = ("onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn")
"""Builds of ONNX Runtime under names of their own: they share its module, and need hardware or drivers."""

NODE_ENGINES = ("onnxruntime-web",)
"""Engines that npm installs and Node runs, without Python."""


def runs_on_node(engine: str) -> bool:
    """Return whether npm installs the engine and Node runs it."""
    return engine in NODE_ENGINES


def parse_engine(runtime: str) -> str:
    """Return the engine in a runtime's name: `onnxruntime` of `onnxruntime+onnxruntime-extensions 1.31.1`."""
    variant, _, _ = runtime.partition(" ")
    return variant.partition("@")[0].partition("+")[0]


def engine_family(engine: str) -> str:
    """Return the engine of a build: `onnxruntime` for each of its builds."""
    return ONNXRUNTIME if engine in ONNXRUNTIME_BUILDS else engine


def has_optimization_levels(engine: str) -> bool:
    """Return whether the engine's graph optimizer can be configured."""
    return engine.startswith(ONNXRUNTIME)


def has_providers(engine: str) -> bool:
    """Return whether the engine has execution providers, and loads libraries of custom operators."""
    return engine_family(engine) == ONNXRUNTIME


REQUIRED_DEPENDENCIES = {
    "onnxruntime": ("numpy",),
    "openvino": ("numpy",),
    "tract": ("numpy",),
    "onnx": ("numpy", "protobuf"),
    "opencv-python-headless": ("numpy",),
    "onnxruntime-web": ("onnxruntime-common",),
}
"""Packages that each engine needs."""
CONDITIONAL_DEPENDENCIES = {"onnx": ("ml-dtypes", "typing-extensions")}
"""Packages that only some releases of an engine need. Source: onnx 1.23.2 imports both, 1.18.0 has no ml_dtypes.

Other dependencies are not installed: openvino 2026.4.1 runs without `openvino-telemetry`, and under Node
onnxruntime-web 1.16.3 to 1.30.0 needs only onnxruntime-common.
"""


def engine_dependencies(engine: str) -> tuple[str, ...]:
    """Return the packages that may be pinned with an engine."""
    return (*REQUIRED_DEPENDENCIES.get(engine, ()), *CONDITIONAL_DEPENDENCIES.get(engine, ()))


def has_required_dependencies(runtime: LockedRuntime) -> bool:
    """Return whether all packages that the engine needs are pinned."""
    pinned = {pin.partition("==")[0] for pin in runtime.packages}
    return pinned.issuperset(REQUIRED_DEPENDENCIES.get(runtime.engine, ()))


_TENSORRT_HINT = (
    'TensorRT is no engine of its own: write `runtime = "onnxruntime-gpu>=1.23"`, '
    '`providers = ["TensorrtExecutionProvider"]`, and as `python` an environment that has both'
)


def runtime_problem(text: str, *, own: bool = False) -> str:
    """Return why the text is not a runtime that can be locked; "" if it is one. `own`: in an own environment."""
    problem = requirement_problem(text)
    if problem:
        return problem
    requirement = Requirement(text)
    engine = canonicalize_name(requirement.name)
    if requirement.extras or requirement.marker:
        return "expected an engine and its releases, without extras and markers"
    if engine in ENGINES:
        return ""
    if engine in ONNXRUNTIME_BUILDS:
        return "" if own else _explain_needed_python(engine)
    if engine.startswith("tensorrt"):
        return _TENSORRT_HINT
    near = _suggest_longer_name(engine) or suggest_spelling(engine, (*ENGINES, *ONNXRUNTIME_BUILDS))
    return f"engine `{engine}` is not known" + (near or f"; expected {join_quoted(ENGINES)}")


def _suggest_longer_name(name: str) -> str:
    """Suggest the engine whose name begins with this one: `opencv-python-headless` for `opencv-python`."""
    longer = [engine for engine in ENGINES if engine.startswith(f"{name}-")]
    return f"; did you mean `{longer[0]}`?" if longer else ""


def _explain_needed_python(engine: str) -> str:
    return (
        f"`{engine}` needs what only some machines have, so that no environment is made for it: name with `python` one "
        f'that has it (`python = ".venv"`), and write `required = false` where it may be missing'
    )


def requirement_problem(text: str, example: str = "onnxruntime>=1.18,<1.32") -> str:
    """Return why the text is not a requirement that a release of a package can satisfy; "" if it is one."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return f"expected a requirement such as `{example}`, got `{text}`"
    if requirement.url:
        return "expected a requirement by name and version, got one by address"
    if not is_satisfiable(requirement.specifier):
        return f"no release can satisfy `{requirement.specifier}`"
    return ""


def specifier_problem(text: str) -> str:
    """Return why the text is not a version specifier that can be satisfied; "" if it is one."""
    try:
        specifier = SpecifierSet(text)
    except InvalidSpecifier:
        return f"expected a version specifier such as `>=0.1,<0.2`, got `{text}`"
    return "" if is_satisfiable(specifier) else f"no version can satisfy `{text}`"


def is_satisfiable(specifier: SpecifierSet) -> bool:
    """Return whether a version can satisfy a specifier: one at, just above or just below a version that it names."""
    if any(clause.operator == "===" for clause in specifier):
        return True  # any text is allowed there
    return any(
        specifier.contains(version, prereleases=True) for version in ("0", "99999", *_sample_versions(specifier))
    )


def _sample_versions(specifier: SpecifierSet) -> Iterator[str]:
    for clause in specifier:
        version = Version(clause.version.removesuffix(".*"))
        epoch = f"{version.epoch}!" if version.epoch else ""
        yield version.public
        yield epoch + _join_release(*version.release, 0, 1)
        yield from (epoch + below for below in _versions_below(version.release))


def _versions_below(release: tuple[int, ...]) -> Iterator[str]:
    """Yield versions just below a release: `1.17.99999` for `1.18`."""
    while release:
        if release[-1]:
            yield _join_release(*release[:-1], release[-1] - 1, 99999)
            return
        release = release[:-1]


def _join_release(*release: int) -> str:
    return ".".join(map(str, release))


LIBRARY_SUFFIXES = (".so", ".dll", ".dylib")
PREINSTALLED_PACKAGES = ("numpy",)
"""Packages that every environment has with its engine."""


def is_library(text: str) -> bool:
    """Return whether an extension is the path of a library, and not the requirement of a package."""
    return "/" in text or "\\" in text or text.lower().endswith(LIBRARY_SUFFIXES)


def package_name(text: str) -> str:
    """Return the normalized package name of a requirement."""
    return canonicalize_name(Requirement(text).name)


def is_satisfied(requirement: str, version: str) -> bool:
    """Return whether a version satisfies the requirement; "" does not."""
    try:
        return Requirement(requirement).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def extension_problem(text: str) -> str:
    """Return why the text is neither a package nor a library; "" if it is one, existing or not."""
    if is_library(text):
        return _library_problem(text)
    if problem := requirement_problem(text, "onnxruntime-extensions>=0.13"):
        return problem
    requirement = Requirement(text)
    if requirement.extras or requirement.marker:
        return "expected a package and its releases, without extras and markers"
    if package_name(text) in (*ENGINES, *ONNXRUNTIME_BUILDS, *PREINSTALLED_PACKAGES):
        return f"`{requirement.name}` registers no custom operators; every environment has it"
    return ""


def _library_problem(text: str) -> str:
    if "\\" in text:
        return f"expected a path with `/`, got `{text}`"
    if not text.lower().endswith(LIBRARY_SUFFIXES):
        return f"expected a library (`.so`, `.dll` or `.dylib`) or a package, got `{text}`"
    if text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return f"expected a path relative to the config's folder, got `{text}`"
    return ""
