"""The release since which something works, and until which it worked."""

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
    """There is a first release only if the newest one works, and a last one only if the oldest one works."""
    assert find_support_span(RELEASES, [each == "y" for each in works]) == expected
