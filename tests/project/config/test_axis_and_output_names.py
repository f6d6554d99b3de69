"""Names of axes and outputs in the config, held against those of the models."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.project.config.loader import ModelNames, find_unknown_names, load_config

CONFIG = """models = ["*.onnx"]
[targets.cpu]
runtime = "onnxruntime"
[[model]]
path = "a.onnx"
"""
A = ModelNames(axes=("batch", "x[1]"), outputs=("logits", "mask"))
B = ModelNames(axes=("time",), outputs=("y",))


def unknown(folder: Path, settings: str, known: dict[str, ModelNames], path: str = "a.onnx") -> tuple[str, ...]:
    """What is said of an entry with these settings, in a project of two models."""
    for name in ("a.onnx", "b.onnx"):
        (folder / name).touch()
    (folder / "onnxgate.toml").write_text(CONFIG.replace('"a.onnx"', f'"{path}"') + settings)
    return find_unknown_names(load_config(folder / "onnxgate.toml"), known)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('sizes = { batch = [1], "x[1]" = [2] }', ()),
        ("tolerance = { rtol = 1, atol = 1, mask = { rtol = 1, atol = 1 } }", ()),
        (
            "sizes = { bacth = [4] }",
            ("line 6: `model[0].sizes.bacth`: no dynamic axis is named `bacth`; did you mean `batch`?",),
        ),
        (
            "[model.sizes]\nbatch = [1]\nq = [4]",
            ("line 8: `model[0].sizes.q`: no dynamic axis is named `q`; expected one of `batch`, `x[1]`",),
        ),
        (
            "tolerance = { nope = { rtol = 1, atol = 1 } }",
            ("line 6: `model[0].tolerance.nope`: no output is named `nope`; expected one of `logits`, `mask`",),
        ),
    ],
)
def test_one_model(tmp_path: Path, settings: str, expected: tuple[str, ...]) -> None:
    """A name that the model does not have is said, with the nearest or with those that there are."""

    assert expected == unknown(tmp_path, settings, {"a.onnx": A})


def test_glob(tmp_path: Path) -> None:
    """Settings of several models may name what only one of them has; what none has is said."""
    settings = "sizes = { batch = [1], time = [2], timr = [3] }"

    assert unknown(tmp_path, settings, {"a.onnx": A, "b.onnx": B}, "*.onnx") == (
        "line 6: `model[0].sizes.timr`: no dynamic axis is named `timr`; did you mean `time`?",
    )


def test_model_that_is_not_known(tmp_path: Path) -> None:
    """What a model of which nothing is known may have is not called unknown."""

    assert unknown(tmp_path, "sizes = { time = [2] }", {"a.onnx": A}, "*.onnx") == ()


def test_no_axis(tmp_path: Path) -> None:
    """Where there is no name at all, none is proposed."""

    assert unknown(tmp_path, "sizes = { q = [2] }", {"a.onnx": ModelNames((), ())}) == (
        "line 6: `model[0].sizes.q`: no dynamic axis is named `q`",
    )
