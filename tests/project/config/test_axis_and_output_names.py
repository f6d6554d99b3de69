"""Axis and output names in the config, compared with those of the models."""

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
    """Return the messages about unknown names in an entry, for a project of two models."""
    for name in ("a.onnx", "b.onnx"):
        (folder / name).touch()
    (folder / "onnxgate.toml").write_text(CONFIG.replace('"a.onnx"', f'"{path}"') + settings)
    pairs = find_unknown_names(load_config(folder / "onnxgate.toml"), known)
    return tuple(dict.fromkeys(problem for _, problem in pairs))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('sizes = { batch = [1], "x[1]" = [2] }', ()),
        ("tolerance = { rtol = 1, atol = 1, mask = { rtol = 1, atol = 1 } }", ()),
        (
            "sizes = { bacth = [4] }",
            ("onnxgate.toml:6: `model[0].sizes.bacth`: no dynamic axis is named `bacth`; did you mean `batch`?",),
        ),
        (
            "[model.sizes]\nbatch = [1]\nq = [4]",
            ("onnxgate.toml:8: `model[0].sizes.q`: no dynamic axis is named `q`; expected one of `batch`, `x[1]`",),
        ),
        (
            "tolerance = { nope = { rtol = 1, atol = 1 } }",
            (
                "onnxgate.toml:6: `model[0].tolerance.nope`: no output is named `nope`; expected one of `logits`, "
                "`mask`",
            ),
        ),
    ],
)
def test_one_model(tmp_path: Path, settings: str, expected: tuple[str, ...]) -> None:
    """A name that the model does not have is reported, with the closest match or the list of valid names."""

    assert expected == unknown(tmp_path, settings, {"a.onnx": A})


def test_glob(tmp_path: Path) -> None:
    """Settings shared by several models may use a name that one of them has; a name that no model has is reported."""
    settings = "sizes = { batch = [1], time = [2], timr = [3] }"

    assert unknown(tmp_path, settings, {"a.onnx": A, "b.onnx": B}, "*.onnx") == (
        "onnxgate.toml:6: `model[0].sizes.timr`: no dynamic axis is named `timr`; did you mean `time`?",
    )


def test_models_concerned(tmp_path: Path) -> None:
    """A wrong name concerns only the models that its entry matches."""
    unknown(tmp_path, "sizes = { q = [3] }", {}, "*.onnx")
    project = load_config(tmp_path / "onnxgate.toml")
    every = find_unknown_names(project, {"a.onnx": A, "b.onnx": B})
    unknown(tmp_path, "sizes = { q = [3] }", {})
    one = find_unknown_names(load_config(tmp_path / "onnxgate.toml"), {"a.onnx": A, "b.onnx": B})

    assert [model for model, _ in every] == ["a.onnx", "b.onnx"]
    assert [model for model, _ in one] == ["a.onnx"]


def test_model_that_is_not_known(tmp_path: Path) -> None:
    """No name is reported as unknown if the names of one of the models could not be read."""

    assert unknown(tmp_path, "sizes = { time = [2] }", {"a.onnx": A}, "*.onnx") == ()


def test_no_axis(tmp_path: Path) -> None:
    """No suggestion is made if the model has no dynamic axes."""

    assert unknown(tmp_path, "sizes = { q = [2] }", {"a.onnx": ModelNames((), ())}) == (
        "onnxgate.toml:6: `model[0].sizes.q`: no dynamic axis is named `q`",
    )
