"""Provoke errors of ONNX Runtime when it loads and runs models."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnxgate.support.limits import accepts_versions, get_limits
from tools.harvest_texts import onnxruntime_models as m
from tools.harvest_texts.environments import QUIET, environment

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
Made = tuple[str, str, Any, dict[str, Any]]
"""Name of the case, expected catalogue entry, model (bytes or proto; None: no file), and job for the child process."""


def stamps() -> Iterator[Made]:
    """Yield models with unsupported or missing version fields."""
    yield "ir-too-new", "ir-version-too-new", m.relu(ir=14), {}
    yield "ir-13", "ir-version-too-new", m.relu(ir=13), {}
    yield "opset-21", "opset-too-new", m.relu(opsets={"": 21}), {}
    yield "ir-missing", "ir-version-missing", _without(m.relu(), "ir_version"), {}
    yield "opset-missing", "opset-missing", _without(m.relu(), "opset_import"), {}
    yield "opset-too-new", "opset-too-new", m.relu(opsets={"": 28}), {}
    yield "opset-too-new-ml", "opset-too-new", m.relu(opsets={"": 12, "ai.onnx.ml": 99}), {}
    yield "opset-too-new-microsoft", "opset-too-new", m.relu(opsets={"": 12, "com.microsoft": 9}), {}
    yield "opset-zero", "operator-unknown", m.relu(opsets={"": 0}), {}


def kernels() -> Iterator[Made]:
    """Yield models with unsupported operators."""
    conv = m.single("Conv", [m.DOUBLE, m.DOUBLE], m.DOUBLE, shape=(1, 1, 1), kernel_shape=[1])
    yield "kernel-type", "kernel-missing", conv, {}
    yield "kernel-equal-int8", "kernel-missing", m.single("Equal", [m.INT8, m.INT8], m.BOOL), {}
    yield (
        "kernel-mul-uint16",
        "kernel-missing",
        m.single("BitShift", [m.UINT16, m.UINT16], m.UINT16, direction="LEFT"),
        {},
    )
    old = m.model(
        [m.node("BatchNormalization", "x s b c d", "y", "bn", is_test=1)],
        [m.value("x", shape=(1, 2, 1, 1)), *(m.value(each) for each in "sbcd")],
        [m.value("y", shape=(1, 2, 1, 1))],
        opsets={"": 6},
    )
    yield "kernel-opset-6", "kernel-missing", old, {}
    yield "kernel-in-function", "kernel-missing", m.function_of_unknown_kernel(), {}
    random = m.model([m.node("RandomNormal", "", "y", "r", shape=[2])], [], ir=10, opsets={"": 22})
    yield "kernel-since-version", "kernel-missing", random, {}
    bf16 = m.single("Conv", [m.BFLOAT16, m.BFLOAT16], m.BFLOAT16, 22, 10, (1, 1, 1), kernel_shape=[1])
    yield "kernel-bfloat16", "kernel-missing", bf16, {}
    yield "unknown-operator", "operator-unknown", m.model([m.node("NotAnOp", "x")]), {}
    yield "operator-newer-than-opset", "operator-unknown", m.single("HardSwish", [m.FLOAT], m.FLOAT, 12), {}
    yield (
        "unknown-microsoft",
        "operator-unregistered",
        m.single("NotAnOp", [m.FLOAT], m.FLOAT, domain="com.microsoft"),
        {},
    )
    yield "custom-domain", "operator-unregistered", m.single("Foo", [m.FLOAT], m.FLOAT, domain="my.domain"), {}
    yield "aten-fallback", "operator-aten", m.single("ATen", [m.FLOAT], m.FLOAT, domain="org.pytorch.aten"), {}
    yield "domain-not-imported", "domain-not-imported", m.model([m.node("Foo", "x", domain="my.domain")]), {}
    upsample = m.single("Upsample", [m.FLOAT, m.FLOAT], m.FLOAT, 10, shape=None)
    yield "deprecated", "operator-deprecated", upsample, {}


def signatures() -> Iterator[Made]:
    """Yield models with a node whose types, attributes or arity are wrong."""
    yield "types-differ", "types-differ", m.single("Add", [m.FLOAT, m.INT64], m.FLOAT), {}
    yield "types-differ-fp16", "types-differ", m.single("Add", [m.FLOAT16, m.FLOAT], m.FLOAT), {}
    yield "output-type", "output-type-wrong", m.single("Abs", [m.FLOAT], m.INT64), {}
    yield "type-not-in-schema", "type-not-allowed", m.single("Abs", [m.BOOL], m.BOOL), {}
    bf16 = m.single("Conv", [m.BFLOAT16, m.BFLOAT16], m.BFLOAT16, 11, 7, (1, 1, 1), kernel_shape=[1])
    yield "bfloat16-not-in-schema", "type-not-allowed", bf16, {}
    shapes = [m.value("a", shape=(2, 3)), m.value("b", shape=(2, 3))]
    yield (
        "shape-inference",
        "shape-inference-failed",
        m.model([m.node("MatMul", "a b", "y", "mm0")], shapes, [m.value("y", shape=(2, 3))]),
        {},
    )
    concat = m.model([m.node("Concat", "a b", "y", "cat", axis=5)], shapes, [m.value("y", shape=None)])
    yield "shape-inference-axis", "shape-inference-failed", concat, {}
    reshape = m.model(
        [m.node("Reshape", "x s", "y", "r")],
        [m.value("x", shape=(2,))],
        [m.value("y", shape=None)],
        [m.weight("s", [3], m.INT64)],
    )
    yield "shape-inference-reshape", "shape-inference-failed", reshape, {}
    yield "attribute-unknown", "attribute-unknown", m.model([m.node("Abs", "x", foo=1)]), {}
    yield "attribute-required", "attribute-missing", m.model([m.node("Cast", "x")]), {}
    yield "attribute-type", "attribute-type-wrong", m.wrongly_typed_attribute(), {}
    yield "arity", "arity-wrong", m.model([m.node("Add", "x", name="add0")]), {}
    yield "arity-output", "arity-wrong", m.model([m.node("Relu", "x", "y z")]), {}


def graphs() -> Iterator[Made]:
    """Yield models with an invalid graph."""
    yield "duplicate-output", "name-duplicated", m.model([m.node("Relu", "x"), m.node("Abs", "x", name="n1")]), {}
    twice = m.model([m.node("Relu", "x", "a"), m.node("Abs", "a")])
    yield "duplicate-node", "node-name-duplicated", twice, {}
    yield "cycle", "graph-cyclic", m.branching(), {}
    yield "undefined-input", "input-undefined", m.model([m.node("Add", "x nope")]), {}
    yield "missing-output", "output-undefined", m.model([m.node("Relu", "x")], outputs=[m.value("zz")]), {}
    yield "raw-size", "weight-size-wrong", m.raw_of_wrong_size(), {}
    gru = m.model(
        [m.node("GRU", "x w r", "y", "gru", hidden_size=1, layout=1)],
        [m.value("x", shape=(1, 2, 1)), m.value("w", shape=(1, 3, 1)), m.value("r", shape=(1, 3, 1))],
        [m.value("y", shape=None)],
        opsets={"": 14},
    )
    yield "constructor", "layout-unsupported", gru, {}
    locale = m.model(
        [
            m.node(
                "StringNormalizer",
                "x",
                "y",
                "sn",
                case_change_action="LOWER",
                is_case_sensitive=0,
                locale="xx_YY.UTF-8",
            )
        ],
        [m.value("x", m.STRING)],
        [m.value("y", m.STRING, None)],
    )
    yield "locale", "locale-missing", locale, {"feed": [["x", "object", ["A", "B"]]]}


def external() -> Iterator[Made]:
    """Yield models with invalid external data."""
    yield "external-missing", "external-data-missing", m.external(), {}
    yield "external-short", "external-data-short", m.external("short.bin"), {"data": {"short.bin": 4}}
    yield "external-offset", "external-data-short", m.external("ok.bin", offset=4096), {"data": {"ok.bin": 8}}
    yield "external-length", "external-data-size-wrong", m.external("ok16.bin", 16), {"data": {"ok16.bin": 16}}
    yield "external-no-location", "external-data-unnamed", m.external(None), {}
    yield "external-number", "external-data-spelling", m.external(offset="many"), {}
    yield "external-key", "external-data-spelling", m.external(offset=0, basepath="."), {}
    yield "external-twice", "external-data-spelling", m.external_twice("ok.bin"), {"data": {"ok.bin": 8}}
    yield "external-absolute", "external-data-absolute", m.external("/nowhere/ok.bin"), {}
    yield (
        "external-outside",
        "external-data-outside",
        m.external("../outside/ok.bin"),
        {"data": {"../outside/ok.bin": 8}},
    )
    yield "external-bytes", "external-data-from-bytes", m.external("ok.bin"), {"bytes": True}


def files() -> Iterator[Made]:
    """Yield files that are not models."""
    whole = m.relu().SerializeToString()
    yield "lfs-pointer", "not-a-model", LFS, {}
    yield "truncated", "not-a-model", whole[:-1], {}
    yield "html", "not-a-model", b"<!DOCTYPE html><html><body>404</body></html>", {}
    yield "text", "not-a-model", b"not found\n", {}
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("data.pkl"), b"x" * 64)
    yield "zip", "not-a-model", buffer.getvalue(), {}
    yield "zeros", "not-a-model", b"\0" * 64, {}
    yield "bytes-garbage", "not-a-model", b"\xff" * 64, {"bytes": True}
    yield "empty", "graph-missing", b"", {}
    yield "no-graph", "graph-missing", m.without_graph(), {}
    yield "no-file", "file-missing", None, {}
    yield "library-missing", "library-missing", m.relu(), {"library": "nope/libcustom.so"}
    yield "provider-unknown", "provider-unavailable", m.relu(), {"providers": ["CUDAExecutionProvider"]}
    yield "provider-nonsense", "provider-unavailable", m.relu(), {"providers": ["NoSuchExecutionProvider"]}


def runs() -> Iterator[Made]:
    """Yield models that load but then fail, because of their inputs or during a run."""
    x2: list[Any] = [["x", "float32", [1, 2]]]
    yield "run-dimension", "input-dimension-wrong", m.relu(), {"feed": [["x", "float32", [1, 2, 3]]]}
    yield "run-rank", "input-rank-wrong", m.relu(), {"feed": [["x", "float32", [[1, 2]]]]}
    yield "run-dtype", "input-type-wrong", m.relu(), {"feed": [["x", "int64", [1, 2]]]}
    yield "run-dtype-double", "input-type-wrong", m.relu(), {"feed": [["x", "float64", [1, 2]]]}
    yield "run-missing", "input-missing", m.relu(), {"feed": []}
    yield "run-extra", "input-name-unknown", m.relu(), {"feed": [*x2, ["token_type_ids", "float32", [1]]]}
    yield "run-output-name", "output-name-unknown", m.relu(), {"feed": x2, "outputs": ["zz"]}
    yield "run-list", "input-not-an-array", m.relu(), {"feed": [["x", None, [1.0, 2.0]]]}
    any1 = {"inputs": [m.value("a", shape=("n",)), m.value("b", shape=("m",))], "outputs": [m.value("y", shape=None)]}
    two = [["a", "float32", [1, 2]], ["b", "float32", [1, 2, 3]]]
    yield "run-broadcast", "broadcast-failed", m.model([m.node("Add", "a b", name="add0")], **any1), {"feed": two}
    reshape = m.model(
        [m.node("Reshape", "x s", "y", "r0")],
        [m.value("x", shape=("n",))],
        [m.value("y", shape=None)],
        [m.weight("s", [3], m.INT64)],
    )
    yield "run-reshape", "reshape-failed", reshape, {"feed": x2}
    unknown = [m.value("a", shape=None), m.value("b", shape=None)]
    matmul = m.model([m.node("MatMul", "a b", name="mm0")], unknown, [m.value("y", shape=None)])
    yield "run-matmul", "matmul-failed", matmul, {"feed": [["a", "float32", [[1, 2]]], ["b", "float32", [[1, 2]]]]}
    gather = m.model(
        [m.node("Gather", "x i", name="g0")], [m.value("x"), m.value("i", m.INT64, (1,))], [m.value("y", shape=None)]
    )
    yield "run-gather", "index-out-of-bounds", gather, {"feed": [*x2, ["i", "int64", [9]]]}
    concat = m.model([m.node("Concat", "a b", name="c0", axis=0)], unknown, [m.value("y", shape=None)])
    yield "run-concat", "concat-failed", concat, {"feed": [["a", "float32", [[1, 2]]], ["b", "float32", [[1, 2, 3]]]]}
    gemm = m.model([m.node("Gemm", "a b", name="gemm0")], unknown, [m.value("y", shape=None)])
    yield "run-gemm", "matmul-failed", gemm, {"feed": [["a", "float32", [[1, 2]]], ["b", "float32", [[1, 2]]]]}
    split = m.model(
        [m.node("Split", "x", "y z", "s0", axis=0)],
        [m.value("x", shape=("n",))],
        [m.value("y", shape=None), m.value("z", shape=None)],
    )
    yield "run-split", "node-failed", split, {"feed": [["x", "float32", [1, 2, 3]]]}
    expand = m.model(
        [m.node("Expand", "x s", name="e0")],
        [m.value("x", shape=("n",)), m.value("s", m.INT64, ("r",))],
        [m.value("y", shape=None)],
    )
    yield "run-expand", "broadcast-failed", expand, {"feed": [*x2, ["s", "int64", [3]]]}
    squeeze = m.model(
        [m.node("Squeeze", "x", name="sq0", axes=[0])], [m.value("x", shape=("n",))], [m.value("y", shape=None)]
    )
    yield "run-squeeze", "node-failed", squeeze, {"feed": x2}
    conv = m.model([m.node("Conv", "a b", name="conv0")], unknown, [m.value("y", shape=None)])
    yield "run-conv", "conv-failed", conv, {"feed": [["a", "float32", [[[1, 2]]]], ["b", "float32", [[[1], [2]]]]]}
    huge = m.model(
        [m.node("ConstantOfShape", "s", name="cs0")], [m.value("s", m.INT64, (1,))], [m.value("y", shape=None)]
    )
    yield "run-memory", "memory-exhausted", huge, {"feed": [["s", "int64", [1 << 45]]]}
    pool = m.model(
        [m.node("MaxPool", "x", name="p0", kernel_shape=[5])], [m.value("x", shape=None)], [m.value("y", shape=None)]
    )
    yield "run-pool", "node-failed", pool, {"feed": [["x", "float32", [[[1, 2]]]]]}


def made() -> list[Made]:
    """Yield all cases."""
    return [each for group in (stamps, kernels, signatures, graphs, external, files, runs) for each in group()]


def expected(release: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case.

    Older releases reject some cases for their version fields.
    """
    limits = get_limits(release)
    minor = int(release.split(".")[1])
    actual = {case: entry for case, entry, _, _ in made()} | {"ort-format": "ort-format-version"}
    for case, _, proto, _ in made() if limits else ():
        if isinstance(proto, ModelProto) and proto.ir_version > limits.ir:
            actual[case] = "ir-version-refused" if minor < 9 else "ir-version-too-new"
        elif isinstance(proto, ModelProto) and not accepts_versions(
            limits, 0, {opset.domain or "ai.onnx": opset.version for opset in proto.opset_import}
        ):
            actual[case] = "opset-too-new"
    if minor < 9:
        actual["ir-missing"] = "ir-version-refused"
    if minor > 13:
        actual["ort-format"] = "ort-format-invalid"
    if minor < 24:  # Source: these releases report an absolute path as missing
        actual["external-absolute"] = "external-data-missing"
    if minor in (25, 26):
        actual["external-bytes"] = "external-data-missing"
    return actual


def _without(proto: Any, field: str) -> Any:
    proto.ClearField(field)
    return proto


def python_of(release: str) -> str:
    """Return a Python version with a wheel of the release."""
    minor = int(release.split(".")[1])
    return "3.8" if minor < 10 else "3.9" if minor < 12 else "3.10" if minor < 15 else "3.11"


def numpy_of(release: str) -> str:
    """Return a requirement for a NumPy version that works with the release."""
    minor = int(release.split(".")[1])
    return "numpy==1.23.5" if minor < 12 else "numpy==1.26.4" if minor < 19 else "numpy==2.2.6"


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case that fails on one release."""
    packages = [f"onnxruntime=={release}", numpy_of(release)]
    if int(release.split(".")[1]) < 5:
        packages.append("protobuf<3.21")
    python = environment(f"onnxruntime-{release}", python_of(release), *packages)
    jobs = [_written(each, folder) for each in made()]
    jobs += list(_ort_format(folder))
    found: dict[str, str] = {}
    while jobs:
        answers, crashed = _performed(python, jobs, folder)
        found |= {answer["case"]: answer["text"] for answer in answers if answer["text"]}
        done = {answer["case"] for answer in answers} | {crashed}
        jobs = [job for job in jobs if job["case"] not in done] if crashed else []
    return found


def _written(case: Made, folder: Path) -> dict[str, Any]:
    name, _, proto, job = case
    path = folder / "models" / "inside" / f"{name}.onnx"
    if proto is not None:
        m.save(proto, path)
    for data, size in job.get("data", {}).items():
        target = path.parent / data
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"\1" * size)
    return {"case": name, "model": f"models/inside/{name}.onnx", **job}


def _ort_format(folder: Path) -> Iterator[dict[str, Any]]:
    """Write a minimal file in ORT format with an unknown version, and yield the job that loads it.

    Source: the FlatBuffers encoding; the table `InferenceSession` in the schema of ORT format, whose first field is
    `ort_version`.
    """
    table = (8).to_bytes(2, "little") + (8).to_bytes(2, "little") + (4).to_bytes(2, "little") + bytes(2)
    root = 8 + len(table)
    text = (4).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"2\0\0\0"
    data = root.to_bytes(4, "little") + b"ORTM" + table + len(table).to_bytes(4, "little") + text
    path = folder / "models" / "inside" / "ort-format.ort"
    path.write_bytes(data)
    yield {"case": "ort-format", "model": "models/inside/ort-format.ort"}


def _performed(python: Path, jobs: list[dict[str, Any]], folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Return the results, and the case that crashed the process, if any."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    child = Path(__file__).parent / "children" / "run_onnxruntime.py"
    done = subprocess.run(
        [python, child, "jobs.json"], cwd=folder, env=QUIET, capture_output=True, check=False, timeout=300
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    answers = [line for line in lines if "text" in line]
    begun = [line["begun"] for line in lines if "begun" in line]
    if done.returncode and not begun:
        return [{"case": job["case"], "text": done.stderr.decode()} for job in jobs[:1]], jobs[0]["case"]
    return answers, begun[-1] if done.returncode else ""
