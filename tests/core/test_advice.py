"""Wording of advice with and without a config."""

from __future__ import annotations

import pytest

from onnxgate.core.advice import Action, Advice, ConfigEdit, Repair, render_advice, render_advice_without_config

CONVERT = Repair("my model.onnx", "to convert the model", ("--unsafe",), condition="(in a repository)")
EXPORT = Action("export at opset 18")
EXCLUDE = ConfigEdit("add it to `exclude`")
REGISTER = ConfigEdit("add the package to `extensions`", essential=True)
COMMAND = 'run `onnxgate fix --unsafe "my model.onnx"'


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ((CONVERT, EXPORT), f"{COMMAND}` to convert the model (in a repository), or export at opset 18"),
        ((EXPORT, EXCLUDE), "export at opset 18, or add it to `exclude`"),
        ("export at opset 18", "export at opset 18"),
    ],
)
def test_with_a_config(advice: Advice, expected: str) -> None:
    """All ways are listed, best first."""
    assert expected == render_advice(advice)


@pytest.mark.parametrize(
    ("advice", "is_fixable", "expected"),
    [
        ((CONVERT, EXPORT), True, f"{COMMAND} --target onnxruntime==1.31.1` to convert the model, or {EXPORT.text}"),
        ((CONVERT, EXPORT), False, "export at opset 18"),
        ((Repair("m.onnx", manual="set `ir_version` to 9"),), False, "set `ir_version` to 9"),
        ((EXPORT, EXCLUDE), True, "export at opset 18"),
        ((EXCLUDE,), True, "run `onnxgate init`, and then add it to `exclude`"),
        ((REGISTER, EXPORT), True, "run `onnxgate init`, and add the package to `extensions`, or export at opset 18"),
        ("export `onnxgate.toml` or the config", True, "export `onnxgate.toml` or the config"),
    ],
)
def test_without_a_config(advice: Advice, is_fixable: bool, expected: str) -> None:
    """`onnxgate fix` needs a target, and there is no config to edit. Names in a text do not matter."""
    assert expected == render_advice_without_config(advice, "onnxruntime==1.31.1", is_fixable=is_fixable)
