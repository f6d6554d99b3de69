"""The smallest nodes of operators, from which answers about support follow."""

from __future__ import annotations

import pytest

from onnxgate.support.answers.minimal_nodes import list_operations
from onnxgate.support.operators import get_implementation


@pytest.mark.parametrize(("result", "exists"), [("tensor(int64)", False), ("tensor(string)", True)])
def test_mappings_return_another_type(result: str, exists: bool) -> None:
    """CategoryMapper returns strings for integers and integers for strings; all releases refuse other types."""
    release = get_implementation("1.28.0")
    operator = release.operator("ai.onnx.ml", "CategoryMapper") if release else None

    assert operator is not None
    assert bool(list_operations(operator, 1, 1, "T1", (("T1", "tensor(int64)"), ("T2", result)))) == exists


def test_paired_inputs_occur_together() -> None:
    """A node with past keys has past values, which newer releases require."""
    release = get_implementation("1.32.0")
    operator = release.operator("com.microsoft", "GroupQueryAttention") if release else None

    assert operator is not None
    (first, *_) = list_operations(operator, 1, 1, "T_CACHE", (("T_CACHE", "tensor(int8)"),))
    assert first.inputs[3:5] == ("tensor(int8)", "tensor(int8)")


@pytest.mark.parametrize("parameter", ["T", "I"])
def test_sequences_have_the_elements_in_question(parameter: str) -> None:
    """The type of a sequence follows from the type of its elements, also if the node is about another parameter."""
    release = get_implementation("1.28.0")
    operator = release.operator("ai.onnx", "SequenceAt") if release else None
    types = (("T", "tensor(uint64)"), ("I", "tensor(int32)"))

    assert operator is not None
    assert list_operations(operator, 11, 11, parameter, types)[0].inputs == ("seq(tensor(uint64))", "tensor(int32)")


@pytest.mark.parametrize(("result", "exists"), [("tensor(double)", False), ("tensor(int8)", True)])
def test_bits_keep_their_number(result: str, exists: bool) -> None:
    """BitCast returns a type of the same size; releases refuse other types."""
    release = get_implementation("1.32.0")
    operator = release.operator("ai.onnx", "BitCast") if release else None

    assert operator is not None
    assert bool(list_operations(operator, 26, 26, "T1", (("T1", "tensor(uint8)"), ("T2", result)))) == exists
