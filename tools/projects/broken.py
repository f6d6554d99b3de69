"""Sources of `fixtures/projects/broken`: one fault per model, and the location of each finding."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import onnx

from projects import exporting, handmade
from projects.expected import CONFIG, LOCK, Expected

FOLDER = Path("fixtures/projects/broken")

PAGE = b"""<!DOCTYPE html>
<html>
  <head><title>Sign in</title></head>
  <body><p>You need to sign in before you can download this file.</p></body>
</html>
"""

EDITS = {
    "retrained": [("seed=5", "seed=4")],
    "guarded": [
        ("        if torch.isnan(rows).any():\n", "\n"),
        ('            raise ValueError("rows contain NaN")\n', "\n"),
    ],
}
"""Edits that restore the scripts to their state at export time; line numbers do not change."""

ALL = ("1.18.1", "1.19.2", "1.24.4", "1.31.1")

EXPECTED = (
    Expected("not-a-model", "download-page", LOCK),
    Expected("not-a-model", "cut-off", LOCK),
    Expected("not-a-model", "checkpoint", LOCK),
    Expected("external-data-missing", "data-missing", LOCK),
    Expected("external-data-corrupt", "data-short", LOCK),
    Expected("external-data-escapes", "data-elsewhere", LOCK),
    Expected("type-mismatch", "mixed-precision", LOCK, runtimes=ALL),
    Expected("input-passthrough", "passthrough", LOCK, runtimes=("1.19.2", "1.24.4")),
    Expected("ir-version-too-new", "ir-13", LOCK, runtimes=("1.18.1", "1.19.2")),
    Expected("ir-version-too-new", "ir-14", LOCK, runtimes=ALL),
    Expected("opset-too-new", "trees", LOCK, runtimes=ALL),
    Expected("opset-mismatch", "opset-17", LOCK),
    Expected("model-changed", "replaced", LOCK),
    Expected("unlocked-model", "never-locked", CONFIG),
    Expected("lock-stale", "", "onnxgate.lock", '[models."models/retired.onnx"]'),
    Expected("unknown-domain", "custom-operator", LOCK, runtimes=ALL),
    Expected("missing-kernel", "frames", "export/frames.py", "same = before == after", runtimes=("1.18.1", "1.19.2")),
    Expected(
        "dynamic-axis-broken",
        "heads",
        "export/heads.py",
        "choices = self.mix(features).reshape(1, 4, 8)",
        runtimes=ALL,
    ),
    Expected("run-failed", "wrong-reshape", LOCK, runtimes=ALL),
    Expected("output-not-finite", "overflow", LOCK, runtimes=ALL),
    Expected("runtime-mismatch", "ceil-pool", LOCK, runtimes=("1.18.1", "1.19.2", "1.24.4")),
    Expected("export-stale", "retrained", "export/retrained.py", "def build() -> dict[str, Any]:"),
    Expected("source-not-exportable", "guarded", "export/guarded.py", "if torch.isnan(rows).any():"),
    Expected("source-mismatch", "approximate", LOCK, runtimes=ALL),
)


class Link(bytes):
    """Target of a symbolic link."""


def handmade_files(*, as_locked: bool = False) -> dict[str, bytes]:
    """Return the files of the project that are not exported, by path.

    With `as_locked`, they have the content for which `onnxgate.lock` was written, before they were broken.
    """
    files = {f"models/{name}.onnx": made.SerializeToString() for name, made in _models().items()}
    files["samples/overflow.npz"] = _rows()
    files |= {f"models/data-{name}.bin": handmade.EXTERNAL for name in ("missing", "short", "not-fetched", "elsewhere")}
    if as_locked:
        del files["models/never-locked.onnx"]
    else:
        _break(files)
    return files


def _models() -> dict[str, onnx.ModelProto]:
    """Return the handmade models by name. Models with a fault in the file are still valid here."""
    model = handmade.model
    return {
        "lfs-not-fetched": handmade.scaled(2),
        "download-page": handmade.scaled(3),
        "cut-off": handmade.scaled(4),
        "checkpoint": handmade.scaled(5),
        "data-missing": handmade.with_external("data-missing.bin"),
        "data-short": handmade.with_external("data-short.bin"),
        "data-not-fetched": handmade.with_external("data-not-fetched.bin"),
        "data-elsewhere": handmade.with_external("data-elsewhere.bin"),
        "mixed-precision": model(
            "g (float[batch, 4] rows) => (float[batch, 4] shifted) <float16[4] shift = {15360, 16384, 16896, 17408}> {"
            " [add_shift] shifted = Add(rows, shift) }"
        ),
        "passthrough": model(
            "g (float[batch, 4] rows) => (float[batch, 4] negated, float[batch, 4] rows) {"
            " [negate] negated = Neg(rows) }"
        ),
        "ir-13": model(_relu("rows", "kept"), ir_version=13),
        "ir-14": model(_relu("rows", "positive"), ir_version=14),
        "trees": model(
            "g (float[batch, 4] rows) => (float[batch, 4] scaled) {"
            " [scale] scaled = ai.onnx.ml.Scaler"
            " <offset = [0.5, 0.5, 0.5, 0.5], scale = [2.0, 2.0, 2.0, 2.0]> (rows) }",
            opsets='"": 18, "ai.onnx.ml": 6',
        ),
        "opset-17": model(_relu("rows", "bounded"), opsets='"": 17'),
        "replaced": handmade.scaled(6),
        "never-locked": handmade.scaled(7),
        "retired": handmade.scaled(8),
        "custom-operator": model(
            "g (float[batch, 4] rows) => (float[batch, 4] activated) {"
            " [fused_gelu] activated = acme.ops.FusedGelu(rows) }",
            opsets='"": 18, "acme.ops": 1',
        ),
        "wrong-reshape": model(
            "g (float[batch, 4] rows) => (float[batch, 3] folded) <int64[2] shape = {0, 3}> {"
            " [fold] folded = Reshape(rows, shape) }"
        ),
        "overflow": model(
            "g (float[batch, 16] rows) => (float[batch, 16] odds)"
            " <float sharpness = {10000.0}, int64[1] axis = {1}> {"
            " [sharpen] sharp = Mul(rows, sharpness)"
            " [raise] powers = Exp(sharp)"
            " [total] total = ReduceSum(powers, axis)"
            " [share] odds = Div(powers, total) }"
        ),
        "ceil-pool": model(
            "g (float[batch, 2, 6, 6] pictures) => (float[batch, 2, 3, 3] pooled) {"
            " [pool] pooled = AveragePool <kernel_shape = [3, 3], strides = [2, 2],"
            " ceil_mode = 1, count_include_pad = 1> (pictures) }"
        ),
    }


def _rows() -> bytes:
    """Return input samples for `overflow`: generated inputs do not show whether infinity occurs in practice."""
    rows, written = io.BytesIO(), io.BytesIO()
    np.save(rows, np.linspace(-1.0, 1.0, 32, dtype=np.float32).reshape(2, 16))
    with zipfile.ZipFile(written, "w") as archive:  # the bytes of `np.savez` depend on the release of Python
        archive.writestr(zipfile.ZipInfo("rows.npy"), rows.getvalue())
    return written.getvalue()


def _relu(rows: str, result: str) -> str:
    return f"g (float[batch, 4] {rows}) => (float[batch, 4] {result}) {{ [relu] {result} = Relu({rows}) }}"


def _break(files: dict[str, bytes]) -> None:
    """Break the files, as if they had changed after they were locked."""
    files["models/lfs-not-fetched.onnx"] = handmade.pointer(hashlib.sha256(b"a newer model").hexdigest(), 128)
    files["models/download-page.onnx"] = PAGE
    files["models/cut-off.onnx"] = files["models/cut-off.onnx"][:-20]
    files["models/checkpoint.onnx"] = _checkpoint()
    files["models/replaced.onnx"] = handmade.scaled(6.5).SerializeToString()
    del files["models/data-missing.bin"], files["models/retired.onnx"]
    files["data-elsewhere.bin"] = files["models/data-elsewhere.bin"]
    files["models/data-elsewhere.bin"] = Link(b"../data-elsewhere.bin")
    files["models/data-short.bin"] = handmade.EXTERNAL[:64]
    files["models/data-not-fetched.bin"] = handmade.pointer(hashlib.sha256(b"newer numbers").hexdigest(), 128)


def _checkpoint() -> bytes:
    """Return a zip archive like those of `torch.save`, with reproducible bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {"model/data.pkl": b"\x80\x02}.", "model/version": b"3\n"}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


@functools.cache
def exported_files(root: Path) -> dict[str, bytes]:
    """Export the models of the project's scripts, and return them by path. Needs torch."""
    names = ("classifier", "frames", "approximate", *EDITS)
    models = {name: exporting.export(root, FOLDER / f"export/{name}.py", EDITS.get(name, ())) for name in names}
    models["heads"] = exporting.run_command(root, FOLDER / "export/heads.py")
    return {f"models/{name}.onnx": model.SerializeToString() for name, model in models.items()}


def config_as_locked(config: str) -> str:
    """Return `onnxgate.toml` without the model that is missing from the lock."""
    return config.replace('[[model]]\npath = "models/never-locked.onnx"\n\n', "")
