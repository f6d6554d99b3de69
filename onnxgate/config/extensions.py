"""Extensions of a target: packages and libraries that register custom operators."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from onnxgate.config.engines import BUILDS, ENGINES
from onnxgate.config.requirements import requirement_problem

LIBRARIES = (".so", ".dll", ".dylib")
COMPANIONS = ("numpy",)
"""What every environment has already, besides its engine."""


def is_library(text: str) -> bool:
    """Whether it is the path of a library; else it is a requirement of a package."""
    return "/" in text or "\\" in text or text.lower().endswith(LIBRARIES)


def package_name(text: str) -> str:
    """The normalised name of the package that a requirement asks for."""
    return canonicalize_name(Requirement(text).name)


def satisfied(requirement: str, version: str) -> bool:
    """Whether a version, "" for none, is one that the requirement takes."""
    try:
        return Requirement(requirement).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def extension_problem(text: str) -> str:
    """Why the text names neither a package nor a library; "" where it does. Whether it is there is not looked at."""
    if is_library(text):
        return _library_problem(text)
    if problem := requirement_problem(text, "onnxruntime-extensions>=0.13"):
        return problem
    requirement = Requirement(text)
    if requirement.extras or requirement.marker:
        return "expected a package and its releases, without extras and markers"
    if package_name(text) in (*ENGINES, *BUILDS, *COMPANIONS):
        return f"`{requirement.name}` registers no custom operators; every environment has it"
    return ""


def _library_problem(text: str) -> str:
    if "\\" in text:
        return f"expected a path with `/`, got `{text}`"
    if not text.lower().endswith(LIBRARIES):
        return f"expected a library (`.so`, `.dll` or `.dylib`) or a package, got `{text}`"
    if text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return f"expected a path relative to the config's folder, got `{text}`"
    return ""
