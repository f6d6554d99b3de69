"""Types of inputs and outputs that releases of ONNX Runtime refuse."""

from __future__ import annotations

import pytest

from onnxgate.support.interface_types import refuses_interface_type
from onnxgate.support.limits import find_interface_type_span

REFUSED = ("1.16.3", "1.21.1", "1.32.0")


@pytest.mark.parametrize(
    "type_name",
    [
        *("tensor(complex64)", "seq(tensor(complex128))", "seq(seq(tensor(float)))", "seq(optional(tensor(float)))"),
        *(
            "optional(optional(tensor(float)))",
            "optional(tensor(float4e2m1))",
            "sparse_tensor(int4)",
            "opaque(d,thing)",
        ),
        *("map(int32,tensor(float))", "map(int64,tensor(bool))", "seq(map(int64,tensor(int64)))"),
        "optional(map(int64,tensor(float)))",
    ],
)
def test_refused_by_all(type_name: str) -> None:
    """No release has these types; the model is refused although no node uses the value."""
    assert [True] * 3 == [refuses_interface_type(release, type_name) for release in REFUSED]
    assert find_interface_type_span(type_name, "onnxruntime") == ("", "")


@pytest.mark.parametrize(
    "type_name",
    [
        *("", "tensor(float)", "tensor(float8e4m3fn)", "seq(tensor(float))", "optional(tensor(bool))"),
        *("optional(seq(tensor(float)))", "sparse_tensor(string)", "map(string,tensor(double))"),
        "seq(map(string,tensor(float)))",
    ],
)
def test_accepted_by_all(type_name: str) -> None:
    """Each release has these types."""
    assert [False] * 3 == [refuses_interface_type(release, type_name) for release in REFUSED]


@pytest.mark.parametrize(
    ("type_name", "last", "first"),
    [
        ("tensor(int4)", "1.18.1", "1.19.0"),
        ("seq(tensor(uint2))", "1.23.2", "1.24.1"),
        ("tensor(float4e2m1)", "1.23.2", "1.24.1"),
        ("optional(tensor(float8e8m0))", "1.26.0", "1.28.0"),
    ],
)
def test_new_types(type_name: str, last: str, first: str) -> None:
    """Older releases refuse a type that newer ones have."""
    actual = [refuses_interface_type(release, type_name) for release in (last, first)]

    assert actual == [True, False]
