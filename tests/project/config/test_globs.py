"""Globs over paths."""

from __future__ import annotations

import pytest

from onnxgate.project.config.globs import covers, literal_folder, matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("models/**/*.onnx", "models/a.onnx", True),
        ("models/**/*.onnx", "models/deep/er/a.onnx", True),
        ("models/**/*.onnx", "other/models/a.onnx", False),
        ("**/*.onnx", "a.onnx", True),
        ("**/*.onnx", "x/a.onnx", True),
        ("**", "x/y/a.onnx", True),
        ("models/*.onnx", "models/x/a.onnx", False),
        ("models/*", "models/a.onnx", True),
        ("models/?.onnx", "models/ab.onnx", False),
        ("models/?.onnx", "models/a.onnx", True),
        ("models/?.onnx", "models//.onnx", False),
        ("models/[ab].onnx", "models/b.onnx", True),
        ("models/[!ab].onnx", "models/b.onnx", False),
        ("models/[!ab].onnx", "models/c.onnx", True),
        ("models/[a-c]x.onnx", "models/bx.onnx", True),
        ("./models/a.onnx", "models/a.onnx", True),
        ("models/a.onnx", "models/a_onnx", False),
        ("models/a+(b).onnx", "models/a+(b).onnx", True),
        ("models/[.onnx", "models/[.onnx", True),
        ("models/x**y/a.onnx", "models/xzy/a.onnx", True),
        ("Models/a.onnx", "models/a.onnx", False),
        ("models/a[!].onnx", "models/a!.onnx", True),
        ("a**c/d", "ab/bc/d", True),
        ("**/" * 30 + "x", "a/" * 100 + "y", False),
        ("*a" * 20 + "b", "a" * 200, False),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    """A glob matches a whole path."""

    assert expected == matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("tests/data", "tests/data/deep/a.onnx", True),
        ("tests/data/", "tests/data/a.onnx", True),
        ("tests/data/**", "tests/data/a.onnx", True),
        ("tests/*", "tests/data/a.onnx", True),
        ("tests/data", "tests/data2/a.onnx", False),
        ("a.onnx", "a.onnx", True),
        ("a.onnx", "x/a.onnx", False),
    ],
)
def test_covers(pattern: str, path: str, expected: bool) -> None:
    """A pattern that names a folder covers everything in it."""

    assert expected == covers(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("models/**/*.onnx", "models"), ("*.onnx", ""), ("a/b/c.onnx", "a/b"), ("a/[bc]/d/e.onnx", "a"), ("./a/*", "a")],
)
def test_literal_folder(pattern: str, expected: str) -> None:
    """The literal prefix of a pattern is the folder in which the file search starts."""

    assert expected == literal_folder(pattern)
