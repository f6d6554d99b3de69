"""Predictions are verified node by node on real runtimes, which also find nodes without a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from onnx import ModelProto

from onnxgate.support.operators import KernelRow
from tests.harness import altered_package
from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

OLD, NEW = "onnxruntime 1.18.1", "onnxruntime 1.19.2"
BOTH = [OLD, NEW]
# No release has kernels of `Det` and `Conv` for double; `Mul` supports uint16 since 1.21.
MISSES = (
    "g (double[2, 2] x, double[1, 1, 4, 4] y, uint16[N] v) => (double d, double[1, 1, 3, 3] e, uint16[N] p, float[2] q)"
    " { d = Det (x) w = Constant <value = double[1, 1, 2, 2] {1.0, 1.0, 1.0, 1.0}> ()"
    " [conv] e = Conv (y, w) [mul] p = Mul (v, v) c = Constant <value = float[2] {1.0, 2.0}> () [fine] q = Abs (c) }"
)


def summarize(report: dict[str, Any]) -> list[tuple[str, str, list[str], bool]]:
    """Return the rule, node, runtimes and confirmation of each finding."""
    findings = [
        (finding["rule"], finding["node"], finding["runtimes"], finding["confirmed"]) for finding in report["findings"]
    ]
    return sorted(findings)


def with_model(small: Repository, text: str | ModelProto, package: Path | None = None) -> Repository:
    """Return the repository with another model, optionally checked by a modified package."""
    write(small.folder / "models" / "small.onnx", text)
    small.run("lock", "--offline")
    return small.with_environment(PYTHONPATH=package) if package else small


def test_every_miss_is_confirmed_although_the_model_stops_at_the_first(small: Repository) -> None:
    """Each missing kernel is confirmed by loading its node alone; the failed load adds no finding."""
    report = with_model(small, MISSES).report(status=1)

    assert [
        ("missing-kernel", "", BOTH, True),
        ("missing-kernel", "conv", BOTH, True),
        ("missing-kernel", "mul", BOTH, True),
    ] == summarize(report)
    assert ([], []) == (report["skipped"], report["undecided"])


def test_a_predicted_crash_is_one_finding(small: Repository) -> None:
    """A release that computes the node when it loads the model ends with the predicted signal."""
    constants = "<int64[2] k = {4, 2}, int64[2] d = {0, 1}>"
    body = f"g (int64[2] x) => (int64[2] y) {constants} {{ [div] q = Div (k, d) y = Add (x, q) }}"
    report = with_model(small, body).report(status=1)

    assert summarize(report) == [("attribute-unsupported", "div", BOTH, True)]


def test_a_false_prediction_is_dropped_though_the_model_is_refused(small: Repository, tmp_path: Path) -> None:
    """The node of a false prediction loads alone; the other predictions are confirmed."""
    package = altered_package.mistaken(tmp_path / "package", "Abs", lambda _: None)
    model = with_model(small, MISSES, package)

    assert ("missing-kernel", "fine", BOTH, False) in summarize(model.report("--static", status=1))
    report = model.report(status=1)
    assert [
        ("missing-kernel", "", BOTH, True),
        ("missing-kernel", "conv", BOTH, True),
        ("missing-kernel", "mul", BOTH, True),
        ("prediction-contradicted", "fine", BOTH, False),
    ] == summarize(report)
    (message,) = [finding["message"] for finding in report["findings"] if finding["rule"] == "prediction-contradicted"]
    assert message.startswith(
        "`Abs` loads in a single-node model, although `missing-kernel` predicted that it would not: node `fine`"
    )


def test_a_model_that_loads_contradicts_all(small: Repository, tmp_path: Path) -> None:
    """If the whole model loads, its nodes are not loaded separately."""
    package = altered_package.mistaken(tmp_path / "package", "Abs", lambda _: None)
    report = with_model(small, "g (float[N] x) => (float[N] y) { y = Abs (x) }", package).report()

    assert [("prediction-contradicted", "", BOTH, False)] == summarize(report)


def test_unnamed_failing_node_is_found(small: Repository, tmp_path: Path) -> None:
    """A node that fails although the support data list a kernel for it is found alone, even without a name."""

    def takes_all(kernel: KernelRow) -> KernelRow:
        return msgspec.structs.replace(kernel, constraints=())

    package = altered_package.mistaken(tmp_path / "package", "Det", takes_all)
    model = with_model(small, "g (double[2, 2] x) => (double z) { y = Neg (x) d = Det (y) z = Abs (d) }", package)

    assert [] == summarize(model.report("--static"))
    report = model.report(status=1)
    assert [("load-failed", "", BOTH, False)] == summarize(report)
    assert report["findings"][0]["message"].startswith(
        "does not load: `Det` is not supported (the node that makes `d`); "
    )


def test_all_refused_nodes_are_found_without_kernel_data(small: Repository) -> None:
    """On a release without kernel data, all refused nodes are found in one check."""
    small.edit("onnxgate.toml", "onnxruntime>=1.18,<1.20", "onnxruntime==1.15.1")
    small.run("lock")
    report = with_model(small, MISSES).report(status=1)
    actual = [each for each in summarize(report) if each[0] == "load-failed"]

    old = ["onnxruntime 1.15.1"]
    assert [("load-failed", node, old, False) for node in ("", "conv", "mul")] == actual
    assert {"load-failed", "no-support-data"} == {rule for rule, _, _, _ in summarize(report)}


def test_all_refused_nodes_are_found_without_predictions(small: Repository) -> None:
    """Without the support stage, all refused nodes are found in one check."""
    report = with_model(small, MISSES).report("--stage", "file,runtime", status=1)

    assert [("load-failed", node, BOTH, False) for node in ("", "conv", "mul")] == summarize(report)


def test_static_shapes_are_preserved(small: Repository) -> None:
    """Reduced models keep static shapes.

    1.15.1 has no kernel for `Shape(19)` but folds it for a static input, so it refuses only the dynamic one.
    """
    small.edit("onnxgate.toml", "onnxruntime>=1.18,<1.20", "onnxruntime==1.15.1")
    small.edit("onnxgate.toml", "[targets.server]\n", '[targets.server]\noptimization = ["all"]\n')
    small.run("lock")
    text = (
        "g (float[N, 4] x, double[2, 2] d) => (int64[2] s, int64[2] t, double e)"
        " { y = Constant <value = float[1, 2] {1.0, 2.0}> () z = Identity (y) [still] s = Shape (z)"
        " [moving] t = Shape (x) e = Det (d) }"
    )
    model = parse(text, '<ir_version: 8, opset_import: ["" : 19]>\n')
    report = with_model(small, model).report(status=1)

    assert {"", "moving"} == {node for rule, node, _, _ in summarize(report) if rule == "load-failed"}
