"""Faults of a file that runs confirm or overrule, on the oldest and the newest release with different results."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

OLD, NEW = "onnxruntime 1.17.3", "onnxruntime 1.31.1"
BIAS = "g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"


def repeated_attribute() -> onnx.ModelProto:
    """Return a model that releases before 1.18 load, and newer ones refuse."""
    model = parse("g (float[N, 2] x) => (float[N, 2] y) { [act] y = LeakyRelu <alpha = 0.1> (x) }")
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    return model


def data_in_two_fields() -> onnx.ModelProto:
    """Return a model that onnx refuses and all releases load."""
    model = parse(BIAS)
    model.graph.initializer[0].raw_data = bytes(8)
    return model


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a locked repository with the models, for two releases."""
    made = command.at(tmp_path / "faults")
    write(made.folder / "models" / "repeated.onnx", repeated_attribute())
    write(made.folder / "models" / "fields.onnx", data_in_two_fields())
    write(made.folder / "models" / "twins.onnx", "g (float[2] x) => (float[2] y) { [n] z = Relu(x) [n] y = Neg(z) }")
    write(
        made.folder / "models" / "constants.onnx",
        "g (float[2] x) => (float[2] y) { [n] a = Constant <value_float = 1.> () "
        "[n] b = Constant <value_float = 2.> () [n] c = Add(x, a) y = Mul(c, b) }",
    )
    targets = (f'[targets.t{index}]\nruntime = "{name.replace(" ", "==")}"\n' for index, name in enumerate((OLD, NEW)))
    made.write("onnxgate.toml", 'models = ["models/*.onnx"]\n\n' + "\n".join(targets))
    commit(made.folder)
    made.run("lock")
    return made


def test_runs_decide(repository: Repository) -> None:
    """A fault is an error only on the runtimes that do not run the model, and a warning if all run it."""
    static = repository.report("--static", status=1)
    report = repository.report(status=1)
    fields, repeated, twins = (f"models/{name}.onnx" for name in ("fields", "repeated", "twins"))

    assert {(it["rule"], it["model"], it["level"]) for it in static["findings"]} == {
        ("invalid-model", model, "error") for model in (fields, repeated, twins)
    }
    assert {(it["rule"], it["model"], it["level"], tuple(it["runtimes"])) for it in report["findings"]} == {
        ("invalid-model", fields, "warning", ()),
        ("invalid-model", repeated, "error", (NEW,)),
        ("invalid-model", twins, "error", (OLD, NEW)),
    }
    (warning,) = (it["message"] for it in report["findings"] if it["model"] == fields)
    assert warning.endswith(f"; {OLD} and 1.31.1 accept it")
    assert {(cell["model"], cell["runtime"]): cell["state"] for cell in report["cells"]} == {
        (fields, OLD): "warning",
        (fields, NEW): "warning",
        (repeated, OLD): "pass",
        (repeated, NEW): "fail",
        (twins, OLD): "fail",
        (twins, NEW): "fail",
        ("models/constants.onnx", OLD): "pass",
        ("models/constants.onnx", NEW): "pass",
    }


def test_verified_matrix(repository: Repository) -> None:
    """Releases that load a model also overrule a fault in `matrix --verify`."""
    target = ("--verify", "--target", "onnxruntime==1.31.1")
    repository.run("matrix", "models/fields.onnx", *target, status=0)
    refused = repository.run("matrix", "models/twins.onnx", *target, status=1).out

    assert "two nodes are named `n`" in refused
