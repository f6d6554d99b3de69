"""What converters of other frameworks say: skl2onnx, onnxmltools, tf2onnx, Keras and jax2onnx."""

from __future__ import annotations

from onnxgate.texts.entry import Entry

ENTRIES = (
    Entry(
        name="sklearn-converter-missing",
        says=(
            r"Unable to find (?:a )?(?:shape calculator|converter) for (?:type|alias) '?(?:<class"
            r" ')?(?P<op>[\w.]{1,200})",
            r"MissingShapeCalculator: (?P<op>[^\n]{1,200})",
        ),
        means="skl2onnx has no converter for `{op}`",
        why="the estimator is of another package, or newer than skl2onnx",
        source="skl2onnx 1.9 to 1.20: MissingShapeCalculator, MissingConverter",
        fix="register one with `skl2onnx.update_registered_converter` (onnxmltools has those of XGBoost and LightGBM)",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="sklearn-opset-too-new",
        says=(
            r"target_opset=?(?P<asked>[^\n]{1,60}?) is higher than (?:the )?(?:latest|most recent)"
            r" (?:supported|tested)",
            r"is higher than the number of the installed onnx package",
        ),
        means="a newer opset is asked for than the converter, or the installed `onnx`, knows",
        fix="leave `target_opset` away, or upgrade `skl2onnx` and `onnx` together",
        rules=("export-failed",),
        source="skl2onnx, onnxmltools: convert_sklearn, convert_topology",
    ),
    Entry(
        name="tf2onnx-operator-unsupported",
        says=(
            r"Tensorflow op \[(?P<node>[^:\]\n]{0,300}): (?P<op>\w{1,100})\] is not supported",
            r"Unsupported ops: Counter\((?P<op>[^\n]{1,300})\)",
        ),
        means="tf2onnx has no conversion of `{op}`",
        fix="export at a newer opset (`--opset`), or give `--custom-ops` where the target has the operator",
        rules=("source-not-exportable", "export-failed"),
        source="tf2onnx 1.8 to 1.17: tfonnx.py, log lines",
    ),
    Entry(
        name="tf2onnx-keras-3",
        says=(
            r"KeyError: 'keras_tensor_\d{1,9}'",
            r"'(?:Functional|Sequential)' object has no attribute 'output_names'",
        ),
        means="tf2onnx cannot read a model of Keras 3",
        fix='export with `model.export(path, format="onnx")`, or through `tf2onnx.convert.from_function`',
        affected="tf2onnx up to 1.17.0 with Keras 3",
        rules=("export-failed",),
        source="facts: engines C, tf2onnx 1.17.0 with Keras 3",
    ),
    Entry(
        name="jax2onnx-unsupported",
        says=(r"No plugins? registered for (?:JAX )?primitive '?(?P<op>[\w-]{1,100})",),
        means="jax2onnx has no conversion of the primitive `{op}`",
        fix="write that part with other operations, or upgrade jax2onnx",
        rules=("source-not-exportable", "export-failed"),
        source="jax2onnx 0.7 to 0.17",
    ),
)
