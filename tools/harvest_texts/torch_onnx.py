"""Provoke errors of both PyTorch exporters."""

from __future__ import annotations

import os
from pathlib import Path

from tools.harvest_texts import snippets
from tools.harvest_texts.environments import environment

OPENING = """
import sys
import torch

class Hidden:
    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            raise ModuleNotFoundError('No module named ' + repr(name), name=name)

def hide(name):
    sys.modules.pop(name, None)
    sys.meta_path.insert(0, Hidden(name))

class Net(torch.nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.body(self, x)

def export(body, x=None, **more):
    torch.onnx.export(Net(body), (torch.ones(2, 4) if x is None else x,), 'm.onnx', **more)

def branch(self, x):
    return x + 1 if x.sum() > 0 else x - 1

@torch.library.custom_op('mylib::foo', mutates_args=())
def foo(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@foo.register_fake
def _(x):
    return torch.empty_like(x)
"""
BOTH = (
    ("data-dependent", "torch-data-dependent", "export(branch, dynamo=True)"),
    ("traced-branch", "torch-traced-constant", "export(branch, dynamo=False)"),
    ("unsupported", "torch-operator-unsupported", "export(lambda s, x: torch.linalg.svd(x)[1], dynamo=True)"),
    (
        "unsupported-script",
        "torch-operator-unsupported",
        "export(lambda s, x: torch.special.bessel_j0(x), dynamo=False)",
    ),
    ("custom", "torch-operator-unsupported", "export(lambda s, x: torch.ops.mylib.foo(x), dynamo=True)"),
    ("custom-script", "torch-operator-unsupported", "export(lambda s, x: torch.ops.mylib.foo(x), dynamo=False)"),
    ("opset-script", "torch-opset-unsupported", "export(lambda s, x: s.linear(x), dynamo=False, opset_version=24)"),
    (
        "opset-low",
        "torch-opset-ignored",
        "export(lambda s, x: torch.nn.functional.layer_norm(x, [4]), dynamo=True, opset_version=9)",
    ),
    (
        "constraints",
        "torch-constraints-violated",
        "torch.export.export(torch.nn.Linear(4, 4), (torch.ones(2, 4),), dynamic_shapes=({1: torch.export.Dim('h')},))",
    ),
    (
        "constraints-batch",
        "torch-constraints-violated",
        "class Fixed(torch.nn.Module):\n    def forward(self, x):\n        return x.view(2, 4)\n"
        "torch.export.export(Fixed(), (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim('batch')},))",
    ),
    ("wrong-key", "torch-dynamic-shapes", "export(lambda s, x: x, dynamo=True, dynamic_shapes={'q': {0: 'b'}})"),
    ("shapes-script", "torch-dynamic-shapes", "export(lambda s, x: x, dynamo=False, dynamic_shapes=({0: 'b'},))"),
    ("fallback", "torch-argument-removed", "export(lambda s, x: s.linear(x), dynamo=True, fallback=True)"),
    ("dynamo-export", "torch-name-removed", "torch.onnx.dynamo_export(Net(branch), torch.ones(2, 4))"),
    ("find-mismatch", "torch-name-removed", "from torch.onnx.verification import find_mismatch"),
    ("legacy", "torch-legacy-exporter", "export(lambda s, x: s.linear(x), dynamo=False)"),
    ("onnxscript", "torch-onnxscript-missing", "hide('onnxscript')\nexport(lambda s, x: s.linear(x))"),
    ("onnx", "torch-onnx-missing", "hide('onnx')\nexport(lambda s, x: s.linear(x), dynamo=False)"),
    (
        "traced-item",
        "torch-traced-constant",
        "export(lambda s, x: x[: int(x.sum().item()) % 2 + 1], dynamo=False)",
    ),
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case.

    `HARVEST_TEXTS_TORCH` must name an interpreter that has this release of torch.
    """
    given = os.environ.get("HARVEST_TEXTS_TORCH")
    packages = (f"torch=={release}", "onnx", "onnxscript", "numpy")
    python = Path(given) if given else environment(f"torch-{release}", "3.11", *packages, deps=True)
    return snippets.run(python, BOTH, folder, OPENING)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected(BOTH)
