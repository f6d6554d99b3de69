"""Detection of state in a source: only state that an export drops is reported, not caches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.runtimes.exporters.test_pytorch import Asker, outputs, project, worker

__all__ = ["project", "worker"]

pytestmark = pytest.mark.torch

SOURCE = """
    import torch
    from torch import nn

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            {begin}

        def forward(self, x):
            {body}

    def build():
        return {{"model": M().eval(), "args": (torch.arange(6.0).reshape(2, 3),), "dynamo": False}}
"""
GROWS = "if self.size < x.shape[0]: self.size = x.shape[0]; self.{} = torch.ones(x.shape[0], 1)"
STATES = {
    "input-changed-in-place": ("pass", "x += 1; return x * 2", ([], False)),
    "buffer-made-when-needed": (
        "self.size = 0",
        GROWS.format('register_buffer("mask", torch.ones(x.shape[0], 1), persistent=False); self.kept')
        + "\n            return x * self.mask",
        ([], False),
    ),
    "buffer-made-longer": (
        'self.size = 1; self.register_buffer("mask", torch.ones(1, 1))',
        GROWS.format("mask") + "\n            return x * self.mask[: x.shape[0]]",
        ([], False),
    ),
    "largest-seen": (
        'self.register_buffer("largest", torch.zeros(1))',
        "self.largest += (x.max() - self.largest).clamp(min=0); return x / self.largest",
        (["largest"], False),
    ),
    "rows-kept": (
        'self.register_buffer("rows", torch.zeros(1, 3))',
        "self.rows = torch.cat([self.rows, x]); return x * 2",
        (["rows"], False),
    ),
    "rows-summed": (
        'self.register_buffer("rows", torch.zeros(1, 3))',
        "self.rows = torch.cat([self.rows, x]); return x + self.rows.sum(0)",
        (["rows"], True),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state(project: Asker, name: str) -> None:
    """A buffer that only the first call writes is a cache; other state that changes is reported."""
    begin, body, expected = STATES[name]
    project.write("m.py", SOURCE.format(begin=begin, body=body))
    details: Any = project.ask("m.py:build", float64=False)["details"]

    assert (details["mutated"], details["remembers"]) == expected


def test_cases_are_isolated_from_in_place_changes(project: Asker) -> None:
    """In-place changes to an input affect neither the stored sample nor the next case."""
    project.write("m.py", SOURCE.format(begin="pass", body="x += 1; return x * 2"))
    result = project.ask("m.py:build", cases=[project.case("a", x=np.zeros((2, 3), np.float32))])
    sample = np.load(result["sample"][0])

    assert sample.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    for kind in ("eager", "eager64"):
        assert outputs(result, kind, 1)[0].tolist() == ((sample + 1) * 2).tolist()


@pytest.mark.parametrize(("first", "length"), [(True, 7), (False, 2)])
def test_recurrent_layers(project: Asker, first: bool, length: int) -> None:
    """The sequence length of each recurrent layer in the example is recorded, since PyTorch may fix it."""
    text = """
        import torch

        class M(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = torch.nn.LSTM(4, 5, batch_first=FIRST)

            def forward(self, x):
                return self.encoder(x)[0]

        def build():
            return {"model": M().eval(), "args": torch.ones(2, 7, 4), "dynamic_shapes": ({0: "a", 1: "b"},)}
    """
    project.write("m.py", text.replace("FIRST", str(first)))

    assert project.ask("m.py:build", float64=False)["details"]["recurrent"] == {"`encoder` (`nn.LSTM`)": length}


CACHE = """
    import torch
    from torch.utils import _pytree

    class Cache:
        def __init__(self, keys, values):
            self.device = keys[0].device
            self.keys, self.values = keys, values

    _pytree.register_pytree_node(
        Cache, lambda cache: ([cache.keys, cache.values], None), lambda parts, _: Cache(*parts),
        serialized_type_name="m.Cache",
        flatten_with_keys_fn=lambda cache: (
            [(_pytree.GetAttrKey("keys"), cache.keys), (_pytree.GetAttrKey("values"), cache.values)], None
        ),
    )

    class M(torch.nn.Module):
        def forward(self, x, cache):
            keys, values = torch.cat([cache.keys[0], x], 1), torch.cat([cache.values[0], x], 1)
            return x @ keys.transpose(1, 2) @ values

    def build():
        past = torch.ones(2, 3, 4)
        shapes = {"x": {0: "batch", 1: "time"}, "cache": [[{0: "batch", 1: "past"}], [{0: "batch", 1: "past"}]]}
        return {"model": M().eval(), "args": (torch.ones(2, 5, 4), Cache([past], [past * 2])), "dynamic_shapes": shapes}
"""


def test_registered_class_as_input(project: Asker) -> None:
    """An object of a registered class, such as a cache of transformers, becomes one input for each of its tensors."""
    project.write("m.py", CACHE)
    arrays = {"x": (2, 5, 4), "cache_0_0": (2, 3, 4), "cache_1_0": (2, 3, 4)}
    case = project.case("a", **{name: np.ones(shape, np.float32) for name, shape in arrays.items()})
    result = project.ask("m.py:build", float64=False, cases=[case])

    assert result["failure"] is None
    assert len(result["input_names"]) == len(result["sample"]) == 3
    assert [(axis["input"], axis["axis"], axis["name"]) for axis in result["details"]["axes"]] == [
        *((0, 0, "batch"), (0, 1, "time")),
        *((1, 0, "batch"), (1, 1, "past"), (2, 0, "batch"), (2, 1, "past")),
    ]
    assert [run["failure"] for run in result["eager"]] == [None, None]


FLAG = """
    import torch

    class M(torch.nn.Module):
        def forward(self, x, flag=True):
            return x * 2 if flag else x

    def build():
        shapes = {"x": {0: "batch"}, "flag": None}
        return {"model": M(), "args": (), "kwargs": {"x": torch.ones(2, 4), "flag": True}, "dynamic_shapes": shapes}

    def build_without_flag():
        return {**build(), "kwargs": {"x": torch.ones(2, 4)}, "dynamic_shapes": {"x": {0: "batch"}}}
"""


@pytest.mark.parametrize(
    ("source", "constants", "keeps_name"), [("build", ["flag"], False), ("build_without_flag", [], True)]
)
def test_arguments_that_are_not_tensors(project: Asker, source: str, constants: list[str], keeps_name: bool) -> None:
    """PyTorch does not rename axes if `dynamic_shapes` has an entry for an argument that is not a tensor."""
    project.write("m.py", FLAG)
    result = project.ask(f"m.py:{source}", float64=False)
    axis = onnx.load(result["model"]).graph.input[0].type.tensor_type.shape.dim[0].dim_param

    assert result["failure"] is None
    assert result["details"]["constants"] == constants
    assert (axis == "batch") == keeps_name


LAZY = """
    import torch
    from torch.utils import _pytree

    class Cache:
        def __init__(self, keys):
            self.keys = torch.cat([torch.tensor([], dtype=keys.dtype), keys], dim=-2)

    _pytree.register_pytree_node(
        Cache, lambda cache: ([cache.keys], None), lambda parts, _: Cache(*parts), serialized_type_name="m.Cache",
        flatten_with_keys_fn=lambda cache: ([(_pytree.GetAttrKey("keys"), cache.keys)], None),
    )

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x, cache):
            cache.keys = torch.cat([cache.keys, self.linear(x)], 1)
            return {"y": x @ cache.keys.transpose(1, 2), "cache": cache}

    def build():
        shapes = {"x": {0: "batch", 1: "time"}, "cache": [{0: "batch", 1: "past"}]}
        kwargs = {"cache": Cache(torch.ones(2, 3, 4)), "x": torch.ones(2, 5, 4)}
        return {"model": M().eval(), "args": (), "kwargs": kwargs, "dynamic_shapes": shapes}
"""


def test_class_that_creates_tensors_as_input(project: Asker) -> None:
    """The DynamicCache of transformers creates an empty tensor, which PyTorch cannot export outside of the module."""
    project.write("m.py", LAZY)
    result = project.ask("m.py:build", float64=False)
    model = onnx.load(result["model"])

    assert result["failure"] is None
    assert [value.name for value in model.graph.input] == ["cache_0", "x"]
    assert "linear.bias" in {tensor.name for tensor in model.graph.initializer}
    assert len(model.graph.output) == 2
    assert [run["failure"] for run in result["eager"]] == [None]
