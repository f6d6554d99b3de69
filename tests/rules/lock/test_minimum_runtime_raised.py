"""Messages about the releases that a model loads on according to predictions, before and after a change."""

from __future__ import annotations

import pytest

from onnxgate.core.findings import Level, Place
from onnxgate.evidence.lock import MinimumRelease, ModelChange
from onnxgate.model.facts import ModelFacts
from onnxgate.rules.lock.minimum_runtime_raised import minimum_runtime_raised

FACTS = ModelFacts("m.onnx", "", 1, 8, {}, "", (), (), {}, ())


@pytest.mark.parametrize(
    ("minimum", "expected"),
    [
        (None, []),
        (MinimumRelease(before="1.9.0", after="1.9.0"), []),
        (MinimumRelease(before="1.10.0", after="1.9.0"), []),
        (MinimumRelease(before="", after="1.9.0"), []),  # it loaded on no release, so none is lost
        (
            MinimumRelease(before="1.9.0", after="1.10.0"),
            ["note: is predicted to need onnxruntime 1.10.0; it needed 1.9.0 at `main`"],
        ),
        (
            MinimumRelease(before="1.9.0", after=""),
            ["note: is predicted not to load on any known onnxruntime release; it needed 1.9.0 at `main`"],
        ),
        (
            MinimumRelease(before="1.9.0", after="1.9.0", lost=("1.31.0",)),
            [
                "error: is predicted to load on fewer onnxruntime releases than the version at `main`; "
                "no longer loads on 1.31.0, which the targets require"
            ],
        ),
        (
            MinimumRelease(before="1.9.0", after="1.18.0", lost=tuple(f"1.{minor}.0" for minor in range(10, 18))),
            [
                "error: is predicted to need onnxruntime 1.18.0; it needed 1.9.0 at `main`; no longer loads on "
                "1.10.0, 1.11.0, 1.12.0, 1.13.0, 1.14.0, 1.15.0 and 2 more, which the targets require"
            ],
        ),
        (
            MinimumRelease(engine="openvino", before="2024.6.0", after="2025.1.0", lost=("2024.6.0",)),
            [
                "error: is predicted to need openvino 2025.1.0; it needed 2024.6.0 at `main`; no longer loads on "
                "2024.6.0, which the targets require"
            ],
        ),
    ],
)
def test_minimum(minimum: MinimumRelease | None, expected: list[str]) -> None:
    """Only the loss of a required release is an error."""
    minimums = () if minimum is None else (minimum,)
    change = ModelChange(before=FACTS, after=FACTS, place=Place("m.onnx"), baseline="at `main`", minimums=minimums)
    hits = minimum_runtime_raised.judge(change)

    assert expected == [f"{(hit.level or Level.ERROR).value}: {hit.message}" for hit in hits]


def test_engines_have_findings_of_their_own() -> None:
    """Their identities and fixes differ: OpenVINO does not limit opsets."""
    minimums = tuple(
        MinimumRelease(engine=engine, before="1.1.0", after="1.2.0", lost=("1.1.0",))
        for engine in ("onnxruntime", "onnxruntime-web", "openvino")
    )
    change = ModelChange(before=FACTS, after=FACTS, place=Place("m.onnx"), baseline="at `main`", minimums=minimums)
    hits = [*minimum_runtime_raised.judge(change)]

    assert ["1.1.0", "onnxruntime-web 1.1.0", "openvino 1.1.0"] == [hit.identity for hit in hits]
    opset, operators = "export at the previous opset and IR version, ", "export with the previous operators, "
    assert [True, True, False] == [str(hit.fix).startswith(opset) for hit in hits]
    assert str(hits[2].fix).startswith(f"{operators}or raise the target to >=1.2.0")
