"""Sort order of releases."""

from __future__ import annotations

from onnxgate.core.findings import runtime_sort_key


def test_a_release_is_read_once() -> None:
    """Parsed releases are cached, because reports of many models sort the same few names repeatedly."""
    assert runtime_sort_key("onnxruntime 1.18.1")[1] is runtime_sort_key("onnxruntime 1.18.1")[1]


def test_releases_sort_by_version() -> None:
    """1.9 sorts before 1.10, and a name that is not a release sorts before both."""
    names = ["onnxruntime 1.10.0", "onnxruntime 1.9.0", "onnxruntime none"]

    assert sorted(names, key=runtime_sort_key) == ["onnxruntime none", "onnxruntime 1.9.0", "onnxruntime 1.10.0"]
