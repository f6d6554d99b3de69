"""Names of types as people write and read them."""

from __future__ import annotations

import pytest

from onnxgate.core.errors import UsageError
from onnxgate.support.answers.type_names import parse_type_name, shorten_type


@pytest.mark.parametrize(
    ("name", "value_type", "short"),
    [
        ("half", "tensor(float16)", "float16"),
        ("tensor(Float)", "tensor(float)", "float"),
        ("seq(fp32)", "seq(tensor(float))", "seq(float)"),
        ("optional(seq(tensor(long)))", "optional(seq(tensor(int64)))", "optional(seq(int64))"),
        ("map(string, float)", "map(string,tensor(float))", "map(string,float)"),
        ("sparse_tensor(float)", "sparse_tensor(float)", "sparse_tensor(float)"),
    ],
)
def test_names_are_types_of_schemas(name: str, value_type: str, short: str) -> None:
    """Names of other libraries are accepted, and the short names can be parsed again."""
    assert (value_type, short) == (parse_type_name(name), shorten_type(value_type))
    assert value_type == parse_type_name(short)


def test_unknown_element_types() -> None:
    """They are errors, also inside of sequences."""
    with pytest.raises(UsageError, match=r"unknown type `flot`; did you mean `float`\?"):
        parse_type_name("seq(flot)")
