"""Requirements and version specifiers, judged before any index is asked."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.config.engines import BUILDS, ENGINES
from onnxgate.config.spelling import listed, nearest

_TENSORRT = (
    'TensorRT is no engine of its own: write `runtime = "onnxruntime-gpu>=1.23"`, '
    '`providers = ["TensorrtExecutionProvider"]`, and as `python` an environment that has both'
)


def runtime_problem(text: str, *, own: bool = False) -> str:
    """Why the text is no runtime that can be locked; "" where it is one. `own`: in an environment of the user's own."""
    problem = requirement_problem(text)
    if problem:
        return problem
    requirement = Requirement(text)
    engine = canonicalize_name(requirement.name)
    if requirement.extras or requirement.marker:
        return "expected an engine and its releases, without extras and markers"
    if engine in ENGINES:
        return ""
    if engine in BUILDS:
        return "" if own else _needs_python(engine)
    if engine.startswith("tensorrt"):
        return _TENSORRT
    near = _longer(engine) or nearest(engine, (*ENGINES, *BUILDS))
    return f"engine `{engine}` is not known" + (near or f"; expected {listed(ENGINES)}")


def _longer(name: str) -> str:
    """The engine whose name goes on after this one: `opencv-python` of `opencv-python-headless`."""
    found = [each for each in ENGINES if each.startswith(f"{name}-")]
    return f"; did you mean `{found[0]}`?" if found else ""


def _needs_python(engine: str) -> str:
    return (
        f"`{engine}` needs what only some machines have, so that no environment is made for it: name with `python` one "
        f'that has it (`python = ".venv"`), and write `required = false` where it may be missing'
    )


def requirement_problem(text: str, example: str = "onnxruntime>=1.18,<1.32") -> str:
    """Why the text is no requirement that some release of a package can satisfy; "" where it is one."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return f"expected a requirement such as `{example}`, got `{text}`"
    if requirement.url:
        return "expected a requirement by name and version, got one by address"
    if not satisfiable(requirement.specifier):
        return f"no release can satisfy `{requirement.specifier}`"
    return ""


def specifier_problem(text: str) -> str:
    """Why the text is no version specifier that can be satisfied; "" where it is one."""
    try:
        specifier = SpecifierSet(text)
    except InvalidSpecifier:
        return f"expected a version specifier such as `>=0.1,<0.2`, got `{text}`"
    return "" if satisfiable(specifier) else f"no version can satisfy `{text}`"


def satisfiable(specifier: SpecifierSet) -> bool:
    """Whether some version lies inside: tried at, just above and just below every version that is named."""
    if any(clause.operator == "===" for clause in specifier):
        return True  # takes any text; an index has to say
    return any(specifier.contains(version, prereleases=True) for version in ("0", "99999", *_samples(specifier)))


def _samples(specifier: SpecifierSet) -> Iterator[str]:
    for clause in specifier:
        version = Version(clause.version.removesuffix(".*"))
        epoch = f"{version.epoch}!" if version.epoch else ""
        yield version.public
        yield epoch + _dotted(*version.release, 0, 1)
        yield from (epoch + below for below in _below(version.release))


def _below(release: tuple[int, ...]) -> Iterator[str]:
    """Versions that lie just below: `1.17.99999` below `1.18`."""
    while release:
        if release[-1]:
            yield _dotted(*release[:-1], release[-1] - 1, 99999)
            return
        release = release[:-1]


def _dotted(*release: int) -> str:
    return ".".join(map(str, release))
