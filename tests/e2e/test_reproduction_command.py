"""The printed reproduction command reports the same findings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.harness.repositories.user_repository import Repository

pytestmark = [pytest.mark.index, pytest.mark.torch]

FAULTY = ("approximate", "frames", "overflow", "wrong-reshape")
AXIS = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4] x) => (float[1, 4] y) <int64[2] shape = {1, 4}> { y = Reshape(x, shape) }"""


def test_command_shows_the_same(project: Callable[[str], Repository], toolchain: Path) -> None:
    """The command selects fewer cases with the same seed, and its findings are equal, including figures."""
    import onnx.parser

    broken = project("broken").with_environment(VIRTUAL_ENV=toolchain.parent.parent)
    onnx.save(onnx.parser.parse_model(AXIS), broken.folder / "models" / "axis.onnx")
    paths = [f"models/{name}.onnx" for name in (*FAULTY, "axis")]
    first = broken.report(*paths, "--stage", "runtime,parity", "--seed", "5", status=1)
    replays = {each["model"]: each for each in first["replays"]}

    assert set(replays) == {path for path in paths if "frames" not in path}  # does not load
    for model, replay in replays.items():
        program, *words = shlex.split(replay["command"])
        again = broken.report(*words[1:], status=1)
        assert (program, words[0]) == ("onnxgate", "check")
        assert [finding for finding in first["findings"] if finding["model"] == model] == again["findings"]
        assert again["scope"].endswith("other input cases not selected")


def test_stored_inputs_work_as_inputs(project: Callable[[str], Repository], cache: Path) -> None:
    """Stored input files work as `inputs` and reproduce the failure of the generated case."""
    broken = project("broken")
    first = broken.report("models/wrong-reshape.onnx", "--stage", "runtime", status=1)
    (replay,) = first["replays"]
    for name in replay["inputs"]:
        np.savez(broken.folder / "samples" / name, **np.load(cache / "inputs" / name))
    entry = 'path = "models/wrong-reshape.onnx"\n'
    broken.edit("onnxgate.toml", entry, f'{entry}inputs = "samples/wrong-reshape-*.npz"\n')
    again = broken.report("models/wrong-reshape.onnx", "--stage", "runtime", status=1)

    assert (len(replay["inputs"]), [finding["rule"] for finding in again["findings"]]) == (2, ["run-failed"])
