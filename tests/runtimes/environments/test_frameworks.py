"""Detection of the frameworks of a project's sources from their imports."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from onnxgate.project.config.schema import Config, ModelSettings
from onnxgate.runtimes.environments.toolchain import packages_to_record, required_frameworks


def config(*sources: str, command: tuple[str, ...] | None = None) -> Config:
    """Return a config whose models have these sources."""
    models = [ModelSettings(path=f"{number}.onnx", source=source) for number, source in enumerate(sources)]
    return Config(model=(*models, *([ModelSettings(path="c.onnx", command=command)] if command else [])))


def write(folder: Path, **files: str) -> None:
    """Write files of a project; `__` in a name stands for `/`, INIT for `__init__`."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/").replace("INIT", "__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("import torch.nn as nn", ["torch"]),
        ("from sklearn.pipeline import make_pipeline", ["scikit-learn"]),
        ("def build():\n    import jax.numpy as jnp", ["jax"]),
        ("import flax", ["jax"]),
        ("import tensorflow as tf, keras", ["keras", "tensorflow"]),
        ("import tf_keras, tensorflow", ["tensorflow"]),
        ("import torch\ntry:\n    import tensorflow\nexcept ImportError:\n    pass", ["torch"]),
    ],
)
def test_imports_of_a_source(tmp_path: Path, text: str, actual: list[str]) -> None:
    """An import counts anywhere in the file, unless the source handles its ImportError."""
    write(tmp_path, m=text)

    assert [
        required_framework[0] for required_framework in required_frameworks(config("m.py:build"), tmp_path)
    ] == actual


@pytest.mark.parametrize(
    "line",
    ["import net", "from net import Net", "from lib.deep import net", "import lib.deep.net", "from lib import deep"],
)
def test_imports_of_the_projects_own_modules(tmp_path: Path, line: str) -> None:
    """Imports of local modules are followed, except imports inside functions of those modules."""
    text = "import xgboost\ndef other():\n    import torch\n"
    write(tmp_path, export__m=line, export__net=text, lib__deep__net=text, lib__deep__INIT="from . import net\n")

    assert required_frameworks(config("export/m.py:build"), tmp_path) == (("xgboost", "xgboost-cpu"),)


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    """Circular imports are handled."""
    write(tmp_path, a="import b", b="import a, lightgbm")

    assert required_frameworks(config("a.py:build"), tmp_path) == (("lightgbm",),)


@pytest.mark.parametrize("text", ["from timm import create_model", "not python", None])
def test_source_without_known_framework(tmp_path: Path, text: str | None) -> None:
    """If no known framework is imported directly, any one of them is required and all are recorded."""
    if text is not None:
        write(tmp_path, m=text)
    asked = config("m.py:build")
    (group,) = required_frameworks(asked, tmp_path)

    assert group == ("torch", "scikit-learn", "xgboost", "lightgbm", "keras", "tensorflow", "jax")
    assert set(packages_to_record(asked, tmp_path)) >= {"torch", "skl2onnx", "jax2onnx", "xgboost-cpu"}


def test_recorded_of_a_framework(tmp_path: Path) -> None:
    """Only the framework and its converter are recorded, not other installed frameworks."""
    write(tmp_path, m="import sklearn")

    assert packages_to_record(config("m.py:build"), tmp_path) == ("onnx", "scikit-learn", "skl2onnx")


@pytest.mark.parametrize("sources", [(), ("m.py:build",)])
def test_recorded_of_a_command(tmp_path: Path, sources: tuple[str, ...]) -> None:
    """A command may use any framework, so the PyTorch packages are recorded as well."""
    write(tmp_path, m="import sklearn")
    actual = set(packages_to_record(config(*sources, command=("make",)), tmp_path))

    assert actual >= {"torch", "onnx", "onnxscript", "onnx-ir"}
    assert ("skl2onnx" in actual) == bool(sources)
