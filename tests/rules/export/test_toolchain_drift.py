"""Fixes of `toolchain-drift`."""

from __future__ import annotations

import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.export import ToolchainState
from onnxgate.rules.export.toolchain_drift import toolchain_drift

INSTALL = "install `onnx==1.19.0 torch==2.13.0` in the toolchain's environment"


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("2.12.0", f"{INSTALL}, or run `onnxgate lock --upgrade torch` to lock the installed versions"),
        ("", INSTALL),
    ],
)
def test_installed_versions_are_locked_with_an_upgrade(installed: str, expected: str) -> None:
    """`onnxgate lock` alone keeps the locked versions, and an upgrade requires an installed package."""
    drift = {"onnx": ("1.19.0", ""), "torch": ("2.13.0", installed)}
    (hit,) = toolchain_drift.judge(ToolchainState(place=Place("onnxgate.toml", 4), drift=drift))

    assert hit.fix == expected
