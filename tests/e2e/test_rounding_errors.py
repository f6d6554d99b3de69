"""Rounding errors of sources and models are measured when a default tolerance is exceeded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

SOURCES = '''
import torch

class Offset(torch.nn.Module):
    """A normalization that amplifies the rounding errors of the large numbers that a layer returns."""

    def __init__(self, bias):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)
        torch.nn.init.normal_(self.layer.weight, std=0.002)
        torch.nn.init.constant_(self.layer.bias, bias)

    def forward(self, x):
        return self.norm(self.layer(x))

def noisy():
    return Offset(5.0).eval(), (torch.randn(4, 64),)

def wrong():
    return noisy()

def lost():
    return Offset(5000.0).eval(), (torch.randn(4, 64),)

if __name__ == "__main__":
    for build in (noisy, wrong, lost):
        model, args = build()
        if build is wrong:
            model.layer.weight.data[3, 5] += 0.01
        torch.onnx.export(
            model, args, f"models/{build.__name__}.onnx", dynamo=True, external_data=False,
            input_names=["x"], output_names=["y"],
        )
'''
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"
""" + "".join(
    f'\n[[model]]\npath = "models/{name}.onnx"\nsource = "net.py:{name}"\n' for name in ("lost", "noisy", "wrong")
)


@pytest.mark.torch
def test_rounding_is_told_from_faults(small: Repository, toolchain: Path) -> None:
    """Rounding passes, a wrong weight of a rounding model is found, and an ill-conditioned output is undecided.

    Measuring for the lock states the same, and records no tolerance for the ill-conditioned output.
    """
    small.write("net.py", SOURCES)
    small.write("onnxgate.toml", f'{CONFIG}\n[toolchain]\npython = "{toolchain.as_posix()}"\n')
    (small.folder / "models" / "small.onnx").unlink()
    subprocess.run([toolchain, "-W", "ignore", "net.py"], cwd=small.folder, check=True, capture_output=True)
    small.run("lock")
    lock = (small.folder / "onnxgate.lock").read_text()
    report = small.report("--stage", "parity", status=1)
    origins = {figure["bound_from"] for figure in report["measured"] if figure["metric"] == "worst_abs"}
    measured = small.run("lock", "--measure", "models/lost.onnx").out

    assert [("source-mismatch", "models/wrong.onnx")] == [
        (finding["rule"], finding["model"]) for finding in report["findings"]
    ]
    assert "measured in this check" in report["findings"][0]["message"]
    assert [("models/lost.onnx", "parity")] == [(row["model"], row["stage"]) for row in report["undecided"]]
    assert "output `y` is ill-conditioned" in report["undecided"][0]["reason"]
    assert "measured" in origins
    assert "measured" not in lock
    assert "output `y` of `models/lost.onnx` is ill-conditioned" in measured


def _fusible(path: Path) -> None:
    """Save a convolution with a large bias, which the optimizer scales before it is subtracted again."""
    random = np.random.default_rng(0)
    scale = random.uniform(0.5, 1.5, (16, 1, 1)).astype(np.float32)
    weights = {
        "w": 0.05 * random.normal(size=(16, 3, 3, 3)),
        "b": np.full(16, 1000),
        "scale": scale,
        "less": -1000 * scale,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["a", "scale"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Add", ["d", "less"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [1, size, 8, 8]) for name, size in (("x", 3), ("y", 16))]
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_rounding_between_levels_is_not_a_mismatch(small: Repository) -> None:
    """Without a source, the rounding errors are measured by running the model with slightly changed weights."""
    (small.folder / "models" / "small.onnx").unlink()
    _fusible(small.folder / "models" / "fusible.onnx")
    small.write("onnxgate.toml", 'models = ["models/*.onnx"]\n[targets.server]\nruntime = "onnxruntime==1.24.4"\n')
    small.run("lock")
    report = small.report("--stage", "parity")
    (measured,) = [figure for figure in report["measured"] if figure["metric"] == "worst_abs"]

    assert (report["findings"], report["undecided"]) == ([], [])
    assert 1e-5 < measured["value"] < measured["bound"] < 5e-3
    assert measured["bound_from"] == "measured"
    assert [True] == ["which exceeds the default" in skipped["reason"] for skipped in report["skipped"]]


HALVES = """
import shutil

import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation="gelu", batch_first=True)
        self.layer.linear1.weight.data *= 4
        self.head = torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.head(self.layer(x))

class Normalized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16)
        self.norm.running_var.uniform_(0.3, 3)

    def forward(self, x):
        return self.norm(self.conv(x))

def normalized():
    return Normalized().half().eval(), (torch.randn(2, 3, 8, 8).half(),)

class Canceling(torch.nn.Module):
    # Multiplies by about 0.25 with larger weights, so that their rounding has a large effect

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.linspace(1, 1.1, 64))

    def forward(self, x):
        return x * self.factor - 0.75 * x

def canceling():
    return Canceling().half().eval(), (torch.randn(2, 64).half(),)

def fine():
    return Attention().half().eval(), (torch.randn(2, 6, 32).half(),)

def value():
    return fine()

def row():
    return fine()

class Manual(Normalized):
    # Computes the normalization in steps, which the exporter does not combine with the convolution

    def forward(self, x):
        norm = self.norm
        parameters = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        mean, var, weight, bias = (it[:, None, None] for it in parameters)
        return (self.conv(x) - mean) / torch.sqrt(var + norm.eps) * weight + bias

def combined():
    return Manual().half().eval(), (torch.randn(2, 3, 8, 8).half(),)

def linear():
    return fine()

def converted():
    return Attention().eval(), (torch.randn(2, 6, 32),)

def query():
    return converted()

if __name__ == "__main__":
    for build in (canceling, fine, value, row, linear, normalized, query):
        model, args = (fine if build is query else build)()
        if build is canceling:  # a weight that a tool computed
            model.factor[0] += 0.001
        if build is value:
            model.layer.self_attn.in_proj_weight.data[64:] *= 1.01
        if build is linear:
            model.layer.linear2.weight.data *= 1.01
        if build is row:
            model.head.weight.data[3] *= 1.004
        if build is query:
            model.layer.self_attn.in_proj_weight.data[:32] *= 1.01
        torch.onnx.export(
            model, args, f"models/{build.__name__}.onnx", dynamo=True, external_data=False,
            input_names=["x"], output_names=["y"],
        )
    shutil.copy("models/fine.onnx", "models/converted.onnx")
    shutil.copy("models/normalized.onnx", "models/combined.onnx")
"""


@pytest.mark.torch
def test_float16_rounding_does_not_hide_faults(small: Repository, toolchain: Path) -> None:
    """Weights of a float16 model that are 1 % off are found, although each output is within its tolerance.

    The models `converted` and `query` have a source in float32, whose weights they round. Rounding, also of
    weights that the exporter computes from those of the source, is not a fault. If its effect is too large, a note
    names the output. The wrong row in `row` has a smaller effect than rounding to float16 would have, but it differs
    from a fresh export. In `combined`, the weights contain a normalization that the source computes separately.
    """
    names = ("canceling", "combined", "converted", "fine", "linear", "normalized", "query", "row", "value")
    small.write("net.py", HALVES)
    models = "".join(f'\n[[model]]\npath = "models/{name}.onnx"\nsource = "net.py:{name}"\n' for name in names)
    small.write(
        "onnxgate.toml", f'{CONFIG.partition("[[model]]")[0]}{models}[toolchain]\npython = "{toolchain.as_posix()}"\n'
    )
    (small.folder / "models" / "small.onnx").unlink()
    subprocess.run([toolchain, "-W", "ignore", "net.py"], cwd=small.folder, check=True, capture_output=True)
    small.run("lock")
    report = small.report("--stage", "parity", status=1)

    assert [("source-mismatch", f"models/{name}.onnx") for name in ("linear", "query", "row", "value")] == [
        (finding["rule"], finding["model"]) for finding in report["findings"]
    ]
    messages = {finding["model"]: finding["message"] for finding in report["findings"]}
    assert "(MatMul), whose weight `val_88` differs" in messages["models/linear.onnx"]
    assert (
        "(MatMul), whose weight `val_92` differs from the source; the model has an SNR" in messages["models/row.onnx"]
    )
    assert "dB in float32 (required: " in messages["models/query.onnx"]
    assert "dB, measured in this check)" in messages["models/query.onnx"]
    assert ["models/canceling.onnx"] == [skipped["model"] for skipped in report["skipped"]]
    assert "output `y` was compared in float16 only" in report["skipped"][0]["reason"]
    measured = small.run("lock", "--measure", "models/converted.onnx").out
    assert "the source computes in float32, but the model in 16 bits" in measured
    assert [] == small.report("--stage", "parity", "models/converted.onnx")["findings"]


SMALL_FAULTS = """
import torch

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, activation="gelu", batch_first=True)

    def forward(self, x):
        return self.layer(x)

class Gate(torch.nn.Module):
    # ONNX Runtime approximates the sigmoid of large negative numbers; the factor multiplies its error

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.nn.functional.silu(self.layer(x) - 8)

def query():
    return Attention().eval(), (torch.randn(2, 6, 32),)

def gate():
    return Gate().eval(), (torch.randn(3, 32),)

if __name__ == "__main__":
    for build in (query, gate):
        model, args = build()
        if build is query:
            model.layer.self_attn.in_proj_weight.data[:32] *= 1.01
        torch.onnx.export(
            model, args, f"models/{build.__name__}.onnx", dynamo=True, external_data=False,
            input_names=["features"], output_names=["y"],
        )
"""


@pytest.mark.torch
def test_small_faults_are_told_from_approximations(small: Repository, toolchain: Path) -> None:
    """A query weight that is 1 % off is found within the default tolerance; a larger error of a kernel is a note.

    The inputs of the models have other names than those of a fresh export, which is run to confirm the fault.
    """
    small.write("net.py", SMALL_FAULTS)
    models = "".join(
        f'\n[[model]]\npath = "models/{name}.onnx"\nsource = "net.py:{name}"\n' for name in ("gate", "query")
    )
    target = 'models = ["models/*.onnx"]\n[targets.server]\nruntime = "onnxruntime==1.31.1"\n'
    small.write("onnxgate.toml", f'{target}{models}\n[toolchain]\npython = "{toolchain.as_posix()}"\n')
    (small.folder / "models" / "small.onnx").unlink()
    subprocess.run([toolchain, "-W", "ignore", "net.py"], cwd=small.folder, check=True, capture_output=True)
    small.run("lock")
    report = small.report("--stage", "parity", status=1)
    (finding,) = report["findings"]
    figures = [figure for figure in report["measured"] if figure["metric"] == "worst_abs"]
    bounds = {figure["bound"] for figure in figures if figure["model"] == "models/query.onnx"}
    notes = {row["model"]: row["reason"] for row in report["skipped"] if "fresh export" in row["reason"]}

    assert ("source-mismatch", "models/query.onnx") == (finding["rule"], finding["model"])
    assert "whose weight " in finding["message"]
    assert max(bounds) < 1e-5
    assert ["models/gate.onnx"] == [*notes]
    assert "a fresh export is not closer to the source" in notes["models/gate.onnx"]
