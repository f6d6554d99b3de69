"""Descriptions of the changes between two locks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from onnxgate.model.facts import ExternalFile, ValueInfo
from onnxgate.project.lock.comparison import (
    describe_lock_changes,
    describe_model_changes,
    entry_from_facts,
    facts_from_entry,
)
from onnxgate.project.lock.types import Lock, LockedModel, LockedTarget, LockedToolchain
from tests.harness.locks import MODEL, models, runtime

X = MODEL.inputs[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("only its bytes; interface, version fields and operators are the same",)),
        ({"ir_version": 10}, ("IR version 10 instead of 8",)),
        ({"function_opsets": {"ai.onnx": 22}}, ("in a local function imports opset 22 of `ai.onnx`",)),
        ({"opsets": {"ai.onnx": 17, "com.microsoft": 1}}, ("imports opset 17 of `ai.onnx` instead of 18",)),
        (
            {"opsets": {"ai.onnx": 18, "ai.onnx.ml": 3}},
            ("imports opset 3 of `ai.onnx.ml`", "no longer imports `com.microsoft`"),
        ),
        ({"inputs": ()}, ("input `x` was removed",)),
        ({"inputs": (X, ValueInfo("mask", "tensor(bool)"))}, ("input `mask` is new",)),
        ({"inputs": (msgspec.structs.replace(X, name="image"),)}, ("input `image` was named `x`",)),
        (
            {"inputs": (ValueInfo("image", "tensor(float)", (1, 3)),)},
            ("input `image` was named `x`", "input `image` has shape [1, 3] instead of [batch, 3]"),
        ),
        (
            {"outputs": (msgspec.structs.replace(MODEL.outputs[0], name="other"), *MODEL.outputs[1:])},
            (f"output `other` was named `{MODEL.outputs[0].name}`",),
        ),
        (
            {"inputs": (ValueInfo("x", "tensor(float16)", ("batch", 3)),)},
            ("input `x` is `tensor(float16)` instead of `tensor(float)`",),
        ),
        (
            {"inputs": (ValueInfo("x", "tensor(float)", (1, 3)),)},
            ("input `x` has shape [1, 3] instead of [batch, 3]",),
        ),
        ({"outputs": MODEL.outputs[::-1]}, ("outputs are in a different order",)),
        ({"producer": "pytorch 2.14.0"}, ("producer `pytorch 2.14.0` instead of `pytorch 2.13.0`",)),
        ({"operators": {"Conv": 3, "com.microsoft.Gelu": 1}}, ("3 x `Conv` instead of 2",)),
        ({"metadata_keys": ()}, ("metadata key `author` was removed",)),
        (
            {"operators": dict.fromkeys(("A", "B", "E", "F"), 1)},
            (
                "operator `A` is new",
                "operator `B` is new",
                "operator `Conv` was removed",
                "operator `E` is new",
                "the counts of 2 more operators differ",
            ),
        ),
    ],
)
def test_model_changes(fields: dict[str, Any], expected: tuple[str, ...]) -> None:
    """Each fact that differs is reported; if none does, the report is that only the bytes changed."""

    assert expected == describe_model_changes(MODEL, msgspec.structs.replace(MODEL, sha256="dd" * 32, **fields))


def test_data_alone() -> None:
    """A change of the external data is a change of the model, even if its own file is identical."""
    other = msgspec.structs.replace(MODEL, external=(ExternalFile("weights.bin", 4096, "ee" * 32),))

    assert describe_model_changes(MODEL, other) == ("data file `weights.bin` has different content",)


@given(models)
def test_same_content(model: LockedModel) -> None:
    """Converting an entry to facts and back changes nothing except the measured values."""
    again = entry_from_facts(facts_from_entry("m.onnx", model))

    assert describe_model_changes(model, again) == ()
    assert msgspec.structs.replace(model, tolerance={}, quantization={}) == again


def test_lock_changes() -> None:
    """Added, removed and changed targets, toolchain packages and models are described."""
    old = Lock(
        targets={
            "kept": LockedTarget(policy="a", runtimes=(runtime("1.18.1"),)),
            "moved": LockedTarget(policy="a", runtimes=(runtime("1.18.1"), runtime("1.19.2", "2.4.5"))),
            "gone": LockedTarget(policy="a", runtimes=(runtime("1.18.1"),)),
            "other": LockedTarget(policy="a", runtimes=(runtime("1.18.1"),)),
        },
        toolchain=LockedToolchain(policy="a", python="3.11", packages={"torch": "2.12.0"}),
        models={"same.onnx": MODEL, "gone.onnx": MODEL, "new.onnx": MODEL},
    )
    new = Lock(
        targets={
            "kept": old.targets["kept"],
            "moved": LockedTarget(policy="b", runtimes=(runtime("1.19.2"), runtime("1.20.1"))),
            "added": LockedTarget(policy="a", runtimes=(runtime("1.30.0"), runtime("1.31.1"))),
            "other": LockedTarget(policy="b", runtimes=(runtime("1.18.1"),)),
        },
        toolchain=LockedToolchain(policy="a", python="3.11", packages={"torch": "2.13.0"}),
        models={
            "same.onnx": MODEL,
            "new.onnx": msgspec.structs.replace(MODEL, sha256="", ir_version=9),
            "b.onnx": MODEL,
        },
    )
    expected = (
        "added target `added`: onnxruntime 1.30.0, 1.31.1",
        "updated target `moved`: added onnxruntime 1.20.1; removed onnxruntime 1.18.1; "
        "onnxruntime 1.19.2 now uses numpy==2.4.6",
        "updated target `other`: its settings changed, but not its runtimes",
        "removed target `gone`",
        "updated the toolchain: Python 3.11, torch 2.13.0",
        "added `b.onnx`",
        "updated `new.onnx`: IR version 9 instead of 8",
        "removed `gone.onnx`",
    )

    assert expected == describe_lock_changes(old, new)
    assert describe_lock_changes(new, new) == ()


def test_facts_come_back() -> None:
    """Facts of a model are restored from its entry, so that a pointer to the locked content can be checked."""
    facts = facts_from_entry("m.onnx", msgspec.structs.replace(MODEL, function_opsets={"ai.onnx": 22}))

    assert (facts.function_opsets, facts_from_entry("m.onnx", entry_from_facts(facts))) == ({"ai.onnx": 22}, facts)
