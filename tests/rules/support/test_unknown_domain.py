"""The rule `unknown-domain`."""

from __future__ import annotations

import pytest

from onnxgate.core.advice import Action, ConfigEdit
from onnxgate.core.findings import Place
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.rules.support.unknown_domain import unknown_domain


def refuse(runtime: str) -> RefusedOperation:
    """Return an operator of a custom domain that a runtime refuses."""
    return RefusedOperation(
        rule="unknown-domain",
        model="m.onnx",
        place=Place("m.onnx"),
        runtimes=(runtime,),
        problem="`acme.Do` belongs to the unknown domain `acme`",
        detail="",
        operator="acme.Do",
        nodes=NodeGroup("", ""),
    )


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [("onnxruntime 1.31.1", [ConfigEdit, Action]), ("onnxruntime-web 1.30.0", [Action])],
)
def test_extensions_are_suggested_only_to_engines_that_load_them(runtime: str, expected: list[type]) -> None:
    """The config refuses `extensions` of targets for other engines."""
    (hit,) = unknown_domain.judge(refuse(runtime))

    assert expected == [type(way) for way in hit.fix]
