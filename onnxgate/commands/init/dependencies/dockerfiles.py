"""Read the ONNX Runtime packages that a Dockerfile installs, and base images that contain ONNX Runtime."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from onnxgate.commands.init.dependencies.declarations import PACKAGES, Declaration, logical_lines, parse_requirement
from onnxgate.commands.init.dependencies.manifests import parse_conda_package
from onnxgate.commands.init.dependencies.version_ranges import convert_npm_range
from onnxgate.commands.init.text_files import UnreadableFileError
from onnxgate.project.engines import ONNXRUNTIME

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_ASSIGNMENT = re.compile(r"\s*(?:ARG|ENV)\s+(\w+)[=\s]\s*\"?([^\s\"]+)", re.IGNORECASE)
_INSTALL_COMMAND = re.compile(r"\b(?:install|add|i|ci)\b")
_BASE_IMAGE = re.compile(r"\s*FROM\s+(?:--\S+\s+)*(\S+/onnxruntime(?:[:@]\S*)?)(?:\s|$)", re.IGNORECASE)


def is_dockerfile(name: str) -> bool:
    """Return whether a file with this name is a Dockerfile."""
    return name in ("Dockerfile", "Containerfile") or name.startswith("Dockerfile.") or name.endswith(".Dockerfile")


def read_dockerfile(text: str) -> Iterator[Declaration]:
    """Read the packages that a Dockerfile installs with `pip`, `uv`, `conda`, `npm` or a similar program."""
    variables: dict[str, str] = {}
    for number, line in logical_lines(text):
        if assigned := _ASSIGNMENT.match(line):
            variables[assigned[1]] = assigned[2]
            continue
        expanded = _VARIABLE.sub(lambda match: variables.get(match[1] or match[3], match[2] or match[0]), line)
        if image := _BASE_IMAGE.match(expanded):
            package = f"{ONNXRUNTIME}-gpu" if re.search("cuda|gpu|tensorrt", image[1]) else ONNXRUNTIME
            yield Declaration(package, image[1], number, _read_image_version, text=image[1])
        if not _INSTALL_COMMAND.search(expanded):
            continue
        for command in re.split(r"&&|\|\|", expanded):
            for word in _split_words(command):
                yield from _parse_installed_package(word.strip("[],;").rpartition("::")[2], number)


def _read_image_version(image: str) -> str:
    """Return a specifier for the release in the tag of an image, such as `…/onnxruntime:v1.15.1`."""
    tag = re.search(r":v?\.?(\d+\.\d+\.\d+)(?![\w.])", image)
    if tag is None:
        raise UnreadableFileError(f"the tag of the image `{image}` does not contain a version")
    return f"=={tag[1]}"


def _split_words(command: str) -> list[str]:
    try:
        return shlex.split(command.replace('",', '" '))  # `RUN ["pip", "install", …]` is a list of strings
    except ValueError:
        return command.split()


def _parse_installed_package(word: str, line: int) -> Iterator[Declaration]:
    match = re.match(r"(onnxruntime(?:[-_.][a-z]+)?|openvino|tract)(?![\w-])(\[[^\]]*\])?(.*)", word, re.IGNORECASE)
    package = canonicalize_name(match[1]) if match else ""
    if match is None or package not in PACKAGES:
        return
    version = match[3]
    if "$" in version:
        yield Declaration(package, word, line, _refuse_build_argument)
    elif version.startswith("@"):
        yield Declaration(package, version[1:], line, convert_npm_range)
    elif re.match(r"=[^=]", version):
        yield from parse_conda_package(word, line)
    else:
        yield from parse_requirement(f"{package}{version}", line)


def _refuse_build_argument(word: str) -> str:
    raise UnreadableFileError(f"the version in `{word}` is only known when the image is built")
