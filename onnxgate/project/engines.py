"""Records of all engines, and validation of the requirements and extensions in targets."""

from __future__ import annotations

import contextlib
import re

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from onnxgate.core.text import join_quoted, suggest_spelling
from onnxgate.project.lock.types import LockedRuntime

ONNXRUNTIME = "onnxruntime"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. Its adapter in `runtimes/worker/adapters/` has the same name, with `_` for `-`."""

    name: str  # the package's normalized name
    builds: tuple[str, ...] = ()  # packages that have the same module but need special hardware or drivers
    on_node: bool = False  # installed by npm and run by Node, without Python and without an adapter
    has_providers: bool = False  # has execution providers, and loads libraries of custom operators
    has_optimization_levels: bool = False  # its graph optimizer can be configured
    dependencies: tuple[str, ...] = ("numpy",)  # packages that every release needs
    conditional_dependencies: tuple[str, ...] = ()  # packages that only some releases need
    variables: tuple[str, ...] = ()  # patterns of environment variables that the engine reads


RECORDS = (
    Engine(
        name=ONNXRUNTIME,
        builds=("onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn"),
        has_providers=True,
        has_optimization_levels=True,
        variables=("ORT_*", "ONNXRUNTIME_*"),
    ),
    # Source: under Node, 1.16.3 to 1.30.0 need no other package that their package.json lists.
    Engine(
        name="onnxruntime-web",
        on_node=True,
        has_optimization_levels=True,
        dependencies=("onnxruntime-common",),
    ),
    # Source: openvino 2026.4.1 imports and runs without its `openvino-telemetry`.
    Engine(
        name="openvino",
        variables=("OPENVINO*", "OV_*"),
    ),
    Engine(name="tract"),
    Engine(
        name="onnx",
        dependencies=("numpy", "protobuf"),
        # Source: onnx 1.23.2 imports both, 1.18.0 has no ml_dtypes.
        conditional_dependencies=("ml-dtypes", "typing-extensions"),
    ),
    Engine(name="opencv-python-headless"),
)
"""All engines, in display order."""
ENGINES = tuple(engine.name for engine in RECORDS)
ONNXRUNTIME_BUILDS = RECORDS[0].builds
REQUIRED_DEPENDENCIES = {engine.name: engine.dependencies for engine in RECORDS}
_BY_PACKAGE = {package: engine for engine in RECORDS for package in (engine.name, *engine.builds)}
_UNKNOWN = Engine(name="", dependencies=())


def find_engine(package: str) -> Engine:
    """Return the record of an engine. `package` is its name or one of its builds; if unknown, the record is empty."""
    return _BY_PACKAGE.get(package, _UNKNOWN)


def runs_on_node(engine: str) -> bool:
    """Return whether npm installs the engine and Node runs it."""
    return find_engine(engine).on_node


def parse_engine(runtime: str) -> str:
    """Return the engine in a runtime's name, such as `onnxruntime` for `onnxruntime+onnxruntime-extensions 1.31.1`."""
    variant, _, _ = runtime.partition(" ")
    return variant.partition("@")[0].partition("+")[0]


def engine_family(engine: str) -> str:
    """Return the engine of a build, such as `onnxruntime` for `onnxruntime-gpu`."""
    return find_engine(engine).name or engine


def has_optimization_levels(engine: str) -> bool:
    """Return whether the engine's graph optimizer can be configured."""
    return find_engine(engine).has_optimization_levels


def has_providers(engine: str) -> bool:
    """Return whether the engine has execution providers, and loads libraries of custom operators."""
    return find_engine(engine).has_providers


def engine_dependencies(engine: str) -> tuple[str, ...]:
    """Return the packages that may be pinned with an engine; other packages are omitted."""
    if engine not in ENGINES:
        return ()
    return (*find_engine(engine).dependencies, *find_engine(engine).conditional_dependencies)


def has_required_dependencies(runtime: LockedRuntime) -> bool:
    """Return whether all packages that the engine needs are pinned."""
    pinned = {pin.partition("==")[0] for pin in runtime.packages}
    return pinned.issuperset(REQUIRED_DEPENDENCIES.get(runtime.engine, ()))


_TENSORRT_HINT = (
    'TensorRT is used through ONNX Runtime: set `runtime = "onnxruntime-gpu>=1.23"`, '
    '`providers = ["TensorrtExecutionProvider"]`, and `python` to an environment with onnxruntime-gpu and TensorRT'
)


def runtime_problem(text: str, *, own: bool = False) -> str:
    """Return why the text is not a runtime that can be locked; "" if it is. `own`: it is in a user environment."""
    if meant := suggest_requirement(text):
        return f"`{text}` is not a valid requirement; did you mean `{meant}`?"
    if problem := requirement_problem(text):
        return problem
    requirement = Requirement(text)
    engine = canonicalize_name(requirement.name)
    if requirement.extras or requirement.marker:
        return "expected an engine and a version range, without extras or markers"
    if engine in ENGINES or (own and engine in ONNXRUNTIME_BUILDS):
        return ""
    if engine in ONNXRUNTIME_BUILDS:
        return (
            f"`{engine}` needs special hardware or drivers, so onnxgate does not create an environment for it; set "
            f'`python` to your own environment with this package (`python = ".venv"`), and set `required = false` if '
            "some machines do not have this environment"
        )
    if engine.startswith("tensorrt"):
        return _TENSORRT_HINT
    longer = [name for name in ENGINES if name.startswith(f"{engine}-")]  # `opencv-python` for `opencv-python-headless`
    near = f"; did you mean `{longer[0]}`?" if longer else suggest_spelling(engine, (*ENGINES, *ONNXRUNTIME_BUILDS))
    return f"unknown engine `{engine}`" + (near or f"; expected one of {join_quoted(ENGINES)}")


def suggest_requirement(text: str) -> str:
    """Guess the requirement that an incomplete text means, such as `onnxruntime==1.18.*` for `1.18`.

    Return "" if the text has an engine and an operator, or cannot be interpreted.
    """
    version = re.fullmatch(rf"(?:{ONNXRUNTIME})?[ =]*v?(\d+(?:\.\d+)*)(\.\*)?", text.strip())
    if version and f"{ONNXRUNTIME}==" not in text.replace(" ", ""):
        is_exact = version[1].count(".") > 1 and not version[2]
        return f"{ONNXRUNTIME}=={version[1]}{'' if is_exact else '.*'}"
    meant = f"{ONNXRUNTIME}{text.strip()}"
    if re.match(r"\s*[<>=!~]", text):
        with contextlib.suppress(InvalidRequirement):
            Requirement(meant)
            return meant
    return ""


def is_misspelled(name: str, engine: str) -> bool:
    """Return whether a package name is probably a misspelling of the engine's name."""
    return find_engine(canonicalize_name(name)) is _UNKNOWN and bool(suggest_spelling(name, (engine,)))


def requirement_problem(text: str, example: str = "onnxruntime>=1.18,<1.32") -> str:
    """Return why the text is not a requirement that a release of a package can satisfy; "" if it is one."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return f"expected a requirement such as `{example}`, got `{text}`"
    if requirement.url:
        return "expected a package name with a version range, got a URL"
    if not is_satisfiable(requirement.specifier):
        return f"no release can satisfy `{requirement.specifier}`"
    return ""


def specifier_problem(text: str) -> str:
    """Return the problem with a version specifier: invalid, or not satisfied by any version; "" if there is none."""
    try:
        specifier = SpecifierSet(text)
    except InvalidSpecifier:
        return f"expected a version specifier such as `>=0.1,<0.2`, got `{text}`"
    return "" if is_satisfiable(specifier) else f"no version can satisfy `{text}`"


def is_satisfiable(specifier: SpecifierSet) -> bool:
    """Return whether a specifier can be satisfied, by testing the versions at its bounds."""
    if any(clause.operator == "===" for clause in specifier):
        return True  # any text is allowed there
    return any(specifier.contains(version, prereleases=True) for version in list_bounding_versions(specifier))


def list_bounding_versions(specifier: SpecifierSet) -> list[str]:
    """Return the versions that a specifier names, those just above and below them, and a very old and new one.

    A version that differs from all of these satisfies the same clauses as one of them.
    """
    versions = ["0", "99999"]
    for clause in specifier:  # `1.18`, `1.18.0.1`, `1.17.99999`
        version = Version(clause.version.removesuffix(".*"))
        epoch = f"{version.epoch}!" if version.epoch else ""
        versions += [version.public, epoch + ".".join(map(str, (*version.release, 0, 1)))]
        below = list(version.release)
        while below and not below[-1]:
            below.pop()
        if below:
            versions.append(epoch + ".".join(map(str, (*below[:-1], below[-1] - 1, 99999))))
    return versions


LIBRARY_SUFFIXES = (".so", ".dll", ".dylib")
PREINSTALLED_PACKAGES = ("numpy",)
"""Packages that every environment contains in addition to its engine."""


def is_library(text: str) -> bool:
    """Return whether an extension is the path of a library rather than the requirement of a package."""
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
    """Return why the text is neither a package nor the path of a library; "" if it is. A library need not exist."""
    if is_library(text):
        if "\\" in text:
            return f"expected a path with `/`, got `{text}`"
        if not text.lower().endswith(LIBRARY_SUFFIXES):
            return f"expected a library (`.so`, `.dll` or `.dylib`) or a package, got `{text}`"
        is_absolute = text.startswith("/") or re.match(r"[A-Za-z]:", text)
        return f"expected a path relative to the config's folder, got `{text}`" if is_absolute else ""
    if problem := requirement_problem(text, "onnxruntime-extensions>=0.13"):
        return problem
    requirement = Requirement(text)
    if requirement.extras or requirement.marker:
        return "expected a package and a version range, without extras or markers"
    if package_name(text) in (*ENGINES, *ONNXRUNTIME_BUILDS, *PREINSTALLED_PACKAGES):
        return f"remove `{requirement.name}`: this package does not register custom operators"
    return ""
