"""Types that ONNX Runtime refuses as inputs, outputs and tensors of a model, whether a node uses them or not."""

from __future__ import annotations

import re

from onnxgate.core.findings import is_release_within

_KEYS = "int64|string"
_MAP_VALUES = "float|double|int64|string"
_LAST_WITHOUT = {
    "complex64": "",
    "complex128": "",
    "int4": "1.18.1",
    "uint4": "1.18.1",
    "float4e2m1": "1.23.2",
    "int2": "1.23.2",
    "uint2": "1.23.2",
    "float8e8m0": "1.26.0",
    "float6e2m3": "",
    "float6e3m2": "",
}
"""Element type -> last release that refuses tensors of it; "" if all do."""
_LAST_WITHOUT_TENSORS = {
    "int4": "1.17.3",
    "uint4": "1.17.3",
    "float4e2m1": "1.22.1",
    "float8e8m0": "1.23.2",
    "int2": "1.23.2",
    "uint2": "1.23.2",
    "float6e2m3": "1.31.1",
    "float6e3m2": "1.31.1",
}
"""Element type -> last release that refuses models with an initializer or constant of it.

Source: models with an unused initializer or constant of 13 types, also in a branch, loaded on 13 releases from 1.16.3
to 1.32.0.
"""
_TENSORS_ONLY = ("float4e2m1",)
"""Element types that no release accepts in sequences and optional values."""
_SMALL = ("int2", "int4", "uint2", "uint4", "float4e2m1")
"""Element types that no release accepts in sparse tensors."""
_ACCEPTED = re.compile(
    r"(?P<container>|seq|optional|optional\(seq)\(?tensor\((?P<element>\w+)\)\)*"
    r"|sparse_tensor\((?P<sparse>\w+)\)"
    rf"|map\((?:{_KEYS}),tensor\((?:{_MAP_VALUES})\)\)"
    rf"|seq\(map\((?:{_KEYS}),tensor\(float\)\)\)"
)
"""Types that releases accept if they accept the element type.

Source: models with an unused input of 114 types (element types, maps, sequences, optional values, sparse tensors),
loaded on 31 releases from 1.16.0 to 1.32.0.
"""


def refuses_tensor_type(release: str, type_name: str) -> bool:
    """Return whether a release of ONNX Runtime refuses models with an initializer or constant of a type.

    It converts sparse tensors to dense ones, except those of strings. Source: sparse tensors of 13 element types as
    initializers and constants in 9 places, loaded on 6 releases from 1.16.3 to 1.32.0.
    """
    if type_name.startswith("sparse_"):
        return type_name == "sparse_tensor(string)"
    last = _LAST_WITHOUT_TENSORS.get(type_name.removeprefix("tensor(").removesuffix(")"))
    return last is not None and is_release_within(release, "", last)


def refuses_interface_type(release: str, type_name: str) -> bool:
    """Return whether a release of ONNX Runtime refuses models with an input or output of a type.

    The type is spelled as in ONNX Runtime; unknown types, spelled "", are not refused.
    """
    if not type_name:
        return False
    accepted = _ACCEPTED.fullmatch(type_name)
    if accepted is None:
        return True
    element, is_sparse = accepted["element"] or accepted["sparse"], accepted["sparse"] is not None
    if (accepted["container"] and element in _TENSORS_ONLY) or (is_sparse and element in _SMALL):
        return True
    return element in _LAST_WITHOUT and is_release_within(release, "", _LAST_WITHOUT[element])
