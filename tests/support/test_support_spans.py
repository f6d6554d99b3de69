"""From which release on something works, and up to which one it did."""

from __future__ import annotations

import pytest

from onnxgate.support.limits import find_support_span

RELEASES = ("1.8.0", "1.9.0", "1.10.0", "1.11.0")


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        ("yyyy", ("", "")),
        ("nnnn", ("", "")),
        ("nnyy", ("1.10.0", "")),
        ("yynn", ("", "1.9.0")),
        ("ynny", ("1.11.0", "1.8.0")),
        ("nyyn", ("", "")),
    ],
)
def test_span(works: str, expected: tuple[str, str]) -> None:
    """Only what lasts to the newest release has a beginning, and only what there was from the oldest on an end."""
    assert find_support_span(RELEASES, [each == "y" for each in works]) == expected
