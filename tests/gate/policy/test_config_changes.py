"""Changes of a target's requirement, for each engine with a support table."""

from __future__ import annotations

import pytest

from onnxgate.gate.policy.config_changes import find_lost_releases


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("onnxruntime-web>=1.20", "onnxruntime-web>=1.22", ["1.20.0", "1.20.1", "1.21.0", "1.21.1"]),
        ("onnxruntime-gpu>=1.17,<1.18", "onnxruntime-gpu>=1.17.1,<1.18", ["1.17.0"]),
        ("onnxruntime-web>=1.30", "onnxruntime-web>=1.29", []),
    ],
)
def test_known_releases_of_the_engine_are_lost(before: str, after: str, expected: list[str]) -> None:
    """The releases of the engine's own table are compared; builds share the table of ONNX Runtime."""
    known = [release for _, release in find_lost_releases(before, after) if release.count(".") == 2]

    assert expected == [release for release in known if release in expected]
    assert bool(expected) is bool(find_lost_releases(before, after))
