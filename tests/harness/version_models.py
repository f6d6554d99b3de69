"""Small models with given version fields, for commands that need no project."""

from __future__ import annotations

from pathlib import Path

import onnx.parser

from onnxgate.support import limits
from tests.harness.models import RELU, write
from tests.harness.repositories.user_repository import Repository

RELEASES = tuple(limits.load_limit_table().releases)
EQUAL = "g (uint8[N] a, uint8[N] b) => (bool[N] y) { y = Equal(a, b) }"
"""Source: ONNX Runtime has a kernel for uint8 since 1.21.0."""
GELU = "g (float[N] x) => (float[N] y) { y = Gelu(x) }"
UNKNOWN = "g (float[N] x) => (float[N] y) <float[N] z> { [odd] z = Abs(x) y = Clipped(z) }"


def stamped(repository: Repository, name: str, ir_version: int, opset: int) -> None:
    """Write a model whose operators every release implements, so that only its version fields matter."""
    write_model(repository, name, ir_version, opset, RELU)


def stamped_file(path: Path, ir_version: int, opset: int) -> None:
    """Write such a model to a path."""
    write(path, onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{RELU}'))


def write_model(repository: Repository, name: str, ir_version: int, opset: int, text: str) -> None:
    """Write a model from ONNX text."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    write(repository.folder / name, onnx.parser.parse_model(head + text))
