"""Real failures of both PyTorch exporters, and the advice for each."""

from __future__ import annotations

import pytest

from onnxgate.diagnostics.catalogue.exporters import find_cause
from tests.runtimes.exporters.test_pytorch import Asker, project, worker

__all__ = ["project", "worker"]

pytestmark = pytest.mark.torch

SOURCE = """
    import torch
    from torch import nn
    X = torch.arange(8.0).reshape(2, 4)

    class M(nn.Module):
        def forward(self, x{more}):
            {body}

    def build():
        return {{"model": M().eval(), "args": (X,), {options}}}
"""
BRANCH = "if x.sum() > 0: return x * 2\n            return x"
CASES = {
    "branch": (BRANCH, "", "", "GuardOnDataDependentSymNode", "`torch.where`", False),
    "operator": ("return torch.linalg.svd(x)[1]", "", "", "DispatchError", "write `aten._linalg_svd`", False),
    "operator-traced": (
        "return torch.linalg.svd(x)[1]",
        "",
        '"dynamo": False',
        "UnsupportedOperatorError",
        "or rewrite `aten::linalg_svd`",
        False,
    ),
    "constraints": (
        "return nn.functional.linear(x, torch.ones(3, 4))",
        "",
        '"dynamic_shapes": {"x": {0: "batch", 1: torch.export.Dim("columns")}}',
        "UserError",
        "compute the size of axis `columns` from `x.shape`",
        False,
    ),
    "conflict": (
        "return nn.functional.linear(x.reshape(1, -1), torch.ones(3, 8))",
        "",
        '"dynamic_shapes": {"x": {0: "rows"}}',
        "ValueError",
        "read `x.shape[0]` in the source",
        False,
    ),
    "no-tensor": ("return x * 2, 3", "", "", "AttributeError", "a value of type `int`", False),
    "no-tensor-traced": ("return x * 2, 3", "", '"dynamo": False', "RuntimeError", "return only tensors", False),
    "unknown-name": (
        "return x * 2",
        "",
        '"dynamic_shapes": {"image": {0: "batch"}}',
        "UserError",
        "each parameter of `forward`",
        None,
    ),
    "by-keyword": (
        "return x * y",
        ", *, y",
        '"dynamo": False, "kwargs": {"y": X}',
        "TypeError",
        "positional arguments",
        None,
    ),
    "unregistered": (
        "return x * y.x",
        ", y",
        '"kwargs": {"y": type("DynamicCache", (), {"x": X})()}',
        "ValueError",
        "register_dynamic_cache_export_support()",
        None,
    ),
    "unregistered-shape": (
        "return x * y.x",
        ", y",
        '"kwargs": {"y": type("DynamicCache", (), {"x": X})()}, "dynamic_shapes": {"x": {0: "b"}, "y": [{0: "b"}]}',
        "UserError",
        "register_dynamic_cache_export_support()",
        None,
    ),
    "too-many-names": (
        "return x * 2",
        "",
        '"dynamo": False, "input_names": ["x", "mask"]',
        "RuntimeError",
        "shorten `input_names` to length 1",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cause(project: Asker, name: str) -> None:
    """The exception class and text determine whether the source can be exported, and the advice."""
    body, more, options, kind, advice, exportable = CASES[name]
    project.write("m.py", SOURCE.format(body=body, more=more, options=options))
    result = project.ask("m.py:build")
    failure = result["failure"]
    cause = find_cause(failure["type"], failure["text"], result["details"]["exporter"])

    assert kind == failure["type"]
    assert cause is not None
    assert (exportable, True) == (cause.exportable, advice in cause.advice)


def test_object_that_creates_tensors() -> None:
    """Seen with torch 2.13 and the DynamicCache of transformers 5.24, if an object is created outside of `forward`."""
    text = "Constant tensor lifted_tensor_4 is not in the constants dictionary."
    cause = find_cause("SpecViolationError", text, "dynamo")

    assert cause is not None
    assert "create the object in `forward`" in cause.advice


def test_refused_opset(project: Asker) -> None:
    """The opset range of the TorchScript exporter is reported."""
    project.write("m.py", SOURCE.format(body="return x * 2", more="", options='"dynamo": False'))
    result = project.ask("m.py:build", opset=24)

    assert result["failure"]["text"] == "Unsupported onnx_opset_version: 24"
    assert result["details"]["opsets"] == [7, 23]


def test_error_of_the_source(project: Asker) -> None:
    """An exception raised by the source itself has no exporter cause."""
    project.write("m.py", SOURCE.format(body="raise ValueError('no weights')", more="", options=""))
    failure = project.ask("m.py:build")["failure"]

    assert failure["type"] == "ValueError"
    assert find_cause(failure["type"], failure["text"], "dynamo") is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('"dynamo": False, "dynamic_shapes": {}', "`dynamic_shapes` with `dynamo: False`; expected `dynamic_axes`"),
        ('"dynamo": "no"', "a value of type `str` as `dynamo`; expected True or False"),
        ('"dynamic_axs": {}', "unknown key `dynamic_axs`; did you mean `dynamic_axes`?"),
        ('"input_names": "x"', "a value of type `str` as `input_names`; expected a list of names"),
    ],
)
def test_options(project: Asker, options: str, says: str) -> None:
    """An invalid option is rejected before the export starts."""
    project.write("m.py", SOURCE.format(body="return x * 2", more="", options=options))
    failure = project.ask("m.py:build")["failure"]

    assert failure["type"] == "SourceError"
    assert says in failure["text"]


def test_printing_of_native_code(project: Asker) -> None:
    """Output that the TorchScript exporter prints from native code does not disturb the response."""
    body = "return torch.linalg.svd(x)[1]"
    project.write("m.py", SOURCE.format(body=body, more="", options='"dynamo": False'))
    before = project.log.read_text().count("Torch IR graph at exception")
    project.ask("m.py:build")

    assert project.log.read_text().count("Torch IR graph at exception") == before + 1


def test_state_is_as_it_was(project: Asker) -> None:
    """Detecting state in a source that counts its calls does not disturb its cases."""
    project.write(
        "m.py",
        """
        import torch
        from torch import nn

        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.calls, self.seen = 0, []

            def forward(self, x):
                self.calls += 1
                self.seen.append(self.calls)
                return x + self.calls

        def build():
            return Counting().eval(), (torch.zeros(2),)
        """,
    )
    result = project.ask("m.py:build", float64=False)

    assert result["details"]["remembers"] is True
    assert [len(result["eager"]), result["eager"][0]["failure"]] == [1, None]


def test_other_seed(project: Asker) -> None:
    """Another seed changes all generators, and the same seed gives the same weights."""
    project.write(
        "m.py",
        """
        import random
        import numpy as np
        import torch
        from torch import nn

        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
                self.weight = nn.Parameter(torch.tensor(drawn))

            def forward(self, x):
                return x * self.weight

        def build():
            return Scaled().eval(), (torch.ones(3),)
        """,
    )
    drawn = [_weights(project.ask("m.py:build", seed=seed, eager=False)) for seed in (0, 1, 0)]

    assert drawn[0] == drawn[2]
    assert all(a != b for a, b in zip(drawn[0], drawn[1], strict=True))


def _weights(result: dict[str, object]) -> list[float]:
    import onnx
    from onnx import numpy_helper

    assert result["eager"] == []
    (weight,) = onnx.load(str(result["model"])).graph.initializer
    return [float(value) for value in numpy_helper.to_array(weight)]


def test_package_that_does_not_fit_pytorch() -> None:
    """The code of the source is right; PyTorch and torchvision are of different releases."""
    cause = find_cause("RuntimeError", "operator torchvision::nms does not exist", "")

    assert cause is not None
    assert "install a release of torchvision" in cause.advice
