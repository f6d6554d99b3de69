"""Detection of state in a source: only state that an export drops is reported, not caches."""

from __future__ import annotations

from typing import Any

import numpy as np
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
