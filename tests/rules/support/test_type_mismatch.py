"""The rule `type-mismatch`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onnxgate.core.findings import Place
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.rules.support.type_mismatch import type_mismatch


def refuse(*, is_castable: bool) -> RefusedOperation:
    """Return an output of a model with a type that a runtime refuses."""
    return RefusedOperation(
        rule="type-mismatch",
        model="m.onnx",
        place=Place("m.onnx"),
        runtimes=("openvino 2026.4.1",),
        problem="output `y` of the model has type `seq(tensor(float))`",
        detail="",
        operator="",
        nodes=NodeGroup("", ""),
        is_castable=is_castable,
    )


@pytest.mark.parametrize(
    ("is_castable", "expected"),
    [
        (True, "change its type to `tensor(float)`, and cast it in the model"),
        (False, "export the model with inputs and outputs of types that all required runtimes support"),
    ],
)
def test_a_cast_is_suggested_only_if_it_is_possible(is_castable: bool, expected: str) -> None:
    """Sequences and complex numbers cannot be cast, nor types for which the engine has no Cast."""
    (hit,) = type_mismatch.judge(refuse(is_castable=is_castable))

    assert expected == hit.fix


def test_a_sparse_tensor_is_to_be_made_dense() -> None:
    """All engines read dense initializers."""
    problem = "tensor `w` of the model has type `sparse_tensor(float)`"
    (hit,) = type_mismatch.judge(replace(refuse(is_castable=False), problem=problem, about="tensor w"))

    assert hit.fix == "store the tensor in a dense initializer"
