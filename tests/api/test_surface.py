"""The public names of `onnxgate.api`, with their fields and defaults, which `docs/stability.md` declares stable."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec

import onnxgate
from onnxgate import api

SURFACE = """\
ArgumentError(ValueError)
Prediction(msgspec.Struct)
    runtime: str
    verdict: Literal['loads', 'refused', 'unknown']
    reasons: tuple[Reason, ...] = ()
    engine: property
    release: property
Reason(msgspec.Struct)
    rule: str
    node: str
    message: str
    detail: str = ''
    works_since: str = ''
Support(msgspec.Struct)
    engine: str
    domain: str
    operator: str
    releases: tuple[str, ...]
    spans: tuple[SupportSpan, ...]
    versions: tuple[VersionSupport, ...]
    summary: str
    supported: property
    is_supported_by_all: property
    since: property
    until: property
SupportSpan(msgspec.Struct)
    since: str
    until: str
    way: Literal['kernel', 'converted', 'function', 'cast', 'folded', 'unknown', 'none']
    reason: str = ''
    is_supported: property
TypeSupport(msgspec.Struct)
    parameter: str
    type: str
    spans: tuple[SupportSpan, ...]
VersionSupport(msgspec.Struct)
    version: int
    first_opset: int
    last_opset: int | None
    deprecated: bool
    spans: tuple[SupportSpan, ...]
    types: tuple[TypeSupport, ...]
    fixed: dict[str, str] = {}
    is_supported: property
assert_supported() -> None
    model: str | os.PathLike[str] | ModelProto
    requirement: str
newest_ir_version() -> int
    requirement: str
newest_opset() -> int
    requirement: str
    *domain: str = 'ai.onnx'
predict() -> list[Prediction]
    model: str | os.PathLike[str] | ModelProto
    requirement: str = 'onnxruntime'
support() -> Support
    operator: str
    *types: str | Mapping[str, str] = ''
    *opset: int | None = None
    *domain: str | None = None
    *requirement: str = 'onnxruntime'
"""
"""If this changes, the changelog has a line about it; a removed or renamed name breaks the code of users."""


def render_type(kind: object) -> str:
    """Return a type as in an annotation, without module names."""
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__
    text = str(kind).replace("typing.", "")
    for name in api.__all__:
        text = text.replace(f"{getattr(api, name).__module__}.{name}", name)
    return text


def render_parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter with its type and default, and with `*` if it must be named."""
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    star = "*" if parameter.kind is parameter.KEYWORD_ONLY else ""
    return f"{star}{parameter.name}: {parameter.annotation}{default}"


def render_surface() -> Iterator[str]:
    """Yield the lines that describe the public names."""
    for name in sorted(api.__all__):
        value = getattr(api, name)
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            yield f"{name}() -> {signature.return_annotation}"
            yield from (f"    {render_parameter(parameter)}" for parameter in signature.parameters.values())
        elif issubclass(value, msgspec.Struct):
            yield f"{name}(msgspec.Struct)"
            for field in msgspec.structs.fields(value):
                default = "" if field.required else f" = {field.default!r}"
                default = default if field.default_factory is msgspec.NODEFAULT else f" = {field.default_factory()!r}"
                yield f"    {field.name}: {render_type(field.type)}{default}"
            yield from (f"    {key}: property" for key, it in vars(value).items() if isinstance(it, property))
        else:
            yield f"{name}({', '.join(base.__name__ for base in value.__bases__)})"


def test_public_names() -> None:
    """Names, parameters, fields, types and defaults are fixed."""
    assert SURFACE.splitlines() == list(render_surface())


def test_every_public_name_has_a_docstring() -> None:
    """The reference and editors show the docstrings, also of properties."""
    for name in api.__all__:
        value = getattr(api, name)
        properties = [it for it in vars(value).values() if isinstance(it, property)] if inspect.isclass(value) else []

        assert all(inspect.getdoc(it) for it in (value, *properties)), name


def test_names_for_completion() -> None:
    """`dir` lists the names before they are loaded."""
    assert sorted(api.__all__) == dir(api)


def run_python(code: str) -> str:
    """Run code with this checkout and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(onnxgate.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


def test_the_import_is_light() -> None:
    """Importing all names loads neither onnx nor NumPy, and nothing that reads or checks models."""
    code = "import json, sys; from onnxgate.api import *; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(run_python(code))
    layers = {name.split(".")[1] for name in loaded if name.startswith("onnxgate.")}

    assert {"api", "core", "support"} >= layers
    assert not {"onnx", "numpy", "click", "pytest"}.intersection(loaded)


def test_no_name_needs_pytest() -> None:
    """pytest is not a dependency of the package."""
    code = "import sys; sys.modules['pytest'] = None; from onnxgate.api import *; print(predict.__name__)"

    assert run_python(code) == "predict"
