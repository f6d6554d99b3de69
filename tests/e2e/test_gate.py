"""The whole gate on real releases: the one test of the quick tier that installs and runs runtimes."""

from __future__ import annotations

import pytest

from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository

pytestmark = [pytest.mark.index, pytest.mark.quick]

OLD, NEW = "onnxruntime 1.18.1", "onnxruntime 1.24.4"
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.18.1"

[targets.staging]
runtime = "onnxruntime>=1.24,<1.25"

[[model]]
path = "models/small.onnx"
sizes = { N = [1, 3] }
"""
# ONNX Runtime 1.18 includes elements beyond the padding in averages.
POOL = """<ir_version: 8, opset_import: ["" : 19]>
g (float[1, 1, 16, 16] x) => (float[1, 1, a, b] y) {
    [pool] y = AveragePool <
        ceil_mode = 1, count_include_pad = 1, kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]
    > (x)
}
"""
# No release has a kernel of `Det` for double.
DETERMINANT = "g (double[2, 2] x) => (double y) { [det] y = Det (x) }"


def test_gate(small: Repository) -> None:
    """A model that works passes; a model that is refused and one with different outputs fail the check."""
    small.write("onnxgate.toml", CONFIG)
    small.run("lock")
    passed = small.report()
    write(small.folder / "models" / "determinant.onnx", DETERMINANT)
    write(small.folder / "models" / "pool.onnx", parse(POOL, head=""))
    small.run("lock", "--offline")
    failed = small.report(status=1)
    findings = [(finding["rule"], finding["model"], finding["node"]) for finding in failed["findings"]]
    states = {(cell["model"].removeprefix("models/"), cell["runtime"]): cell["state"] for cell in failed["cells"]}

    assert (passed["verdict"], passed["findings"], passed["undecided"]) == ("pass", [], [])
    assert f"{OLD} against {NEW}" in {measurement["pair"] for measurement in passed["measured"]}
    assert [
        ("missing-kernel", "models/determinant.onnx", "det"),
        ("runtime-mismatch", "models/pool.onnx", "pool"),
    ] == findings
    assert {
        **dict.fromkeys((("determinant.onnx", OLD), ("determinant.onnx", NEW), ("pool.onnx", OLD)), "fail"),
        **dict.fromkeys((("pool.onnx", NEW), ("small.onnx", OLD), ("small.onnx", NEW)), "pass"),
    } == states
