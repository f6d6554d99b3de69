"""Error texts of PyTorch's two exporters (`dynamo=True` and TorchScript) and of other exporters.

The export stage calls `find_cause`, which matches both the class and the text of an error.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from onnxgate.diagnostics.catalogue import Entry

TORCH_ONNX = (
    Entry(
        name="torch-data-dependent",
        patterns=r"Could not (?:guard on|extract specialized integer from) data-dependent"
        r" (?:expression|symbolic)? ?(?P<detail>[^\n]{0,200})",
        means="a branch or size in the model's code depends on the value of a tensor: {detail}",
        fix="use `torch.cond` or `torch.where` on the line shown in the traceback",
        example="Could not guard on data-dependent expression Eq(u0, 1)",
        source="torch.export, GuardOnDataDependentSymNode",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="torch-constraints-violated",
        patterns=(
            r"Constraints violated \((?P<axes>[^)\n]{1,200})\)!",
            r"was (?:marked dynamic|specialized) [^\n]{0,80}(?:inferred to be a )?constant",
        ),
        means=(
            "axis `{axes}` is requested as dynamic, but the model's code fixes or limits its size",
            "an axis is requested as dynamic, but the model's code fixes or limits its size",
        ),
        why="typical causes are an example batch size of 1, a `view` with fixed sizes, and a comparison of sizes",
        fix="use example inputs of size 2 or more, compute sizes with `x.shape[0]` or -1, "
        "or follow the suggestion in the error message",
        rules=("dynamic-axis-lost", "export-failed"),
    ),
    Entry(
        name="torch-example-outside",
        patterns=r"ConstraintViolationError(?:'>)?: (?P<actual>-?\d{1,20}) not in range \[(?P<limit>[^\]\n]{1,60})\]",
        means="an example input has size {actual}, outside the range `[{limit}]` of its `Dim`",
        fix="use a size in the range, or change `min` and `max` of the `Dim`",
        rules=("export-failed",),
    ),
    Entry(
        name="torch-script-module",
        patterns=r"Exporting a ScriptModule is not supported",
        means="the `dynamo=True` exporter does not accept `torch.jit` modules",
        fix="pass the original `nn.Module`, or export with `dynamo=False`",
        affected="torch 2.9 and newer, where `dynamo=True` is the default",
        rules=("source-not-exportable", "export-failed"),
        self_explanatory=True,
    ),
    Entry(
        name="torch-dynamic-shapes",
        patterns=(
            r"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names"
            r" (?P<expected>[^\n]{1,200}?) of `inputs`, but here they are (?P<actual>[^\n.]{1,200})",
            r"only supports dynamic shapes through parameter dynamic_axes",
            r"Detected mismatch between the structure of `inputs` and `dynamic_shapes`",
        ),
        means="`dynamic_shapes` does not match the inputs, or the exporter does not support `dynamic_shapes`",
        fix="use the argument names of `forward` as the keys of `dynamic_shapes`; with `dynamo=False`, pass "
        "`dynamic_axes` instead",
        rules=("export-failed",),
    ),
    Entry(
        name="torch-operator-unsupported",
        patterns=(
            r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.]{1,100})'",
            r"Exporting the operator '?(?P<op>[\w:.]{1,100})'? to ONNX opset version (?P<opset>\d{1,9})"
            r" is not supported\. Support for this operator was added in version (?P<since>\d{1,9})",
            r"Exporting the operator '?(?P<op>[\w:.]{1,100})'? to ONNX opset version (?P<opset>\d{1,9})"
            r" is not supported",
            r"ONNX export failed on an operator with unrecognized namespace (?P<op>[\w:.]{1,100})",
        ),
        means=(
            "exporting `{op}` requires opset {since}",
            "the exporter has no translation for `{op}`",
        ),
        why="ONNX has no equivalent operator at this opset, or the operator is a custom operator",
        fix=(
            "export at opset {since} or newer",
            "use a newer opset or PyTorch release, or pass `custom_translation_table`",
        ),
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="torch-opset-unsupported",
        patterns=r"Unsupported (?:onnx_opset_version|ONNX opset version): (?P<opset>\d{1,9})",
        means="the exporter cannot write opset {opset}",
        why="the TorchScript exporter does not support the newest opsets",
        fix="request an older opset, or export with `dynamo=True`",
        affected="opset 24 and newer with `dynamo=False` in torch 2.13",
        rules=("export-failed",),
        self_explanatory=True,
    ),
    Entry(
        name="torch-opset-ignored",
        patterns=(
            r"Failed to convert the model to the target version (?P<opset>\d{1,9})",
            r"The model version conversion is not supported[^\n]{0,80}",
        ),
        means=(
            "the model was not converted to opset {opset}",
            "the model was not converted to the requested opset",
        ),
        why="the exporter writes opset 18 or newer, and does not report a failed conversion to an older opset",
        fix="request opset 18 or newer, or export with `dynamo=False`",
        rules=("export-opset-ignored",),
        self_explanatory=True,
    ),
    Entry(
        name="torch-traced-constant",
        patterns=(
            r"TracerWarning: (?P<detail>[^\n]{1,120}) might cause the trace to be incorrect",
            r"TracerWarning: (?P<detail>[^\n]{1,120})",
        ),
        means="a value from the example inputs was stored as a constant; results may be wrong for other inputs",
        fix="use `torch.where`, or export with `dynamo=True`, which reports such code as an error",
        rules=("source-mismatch",),
    ),
    Entry(
        name="torch-argument-removed",
        patterns=r"export\(\) got an unexpected keyword argument '(?P<name>\w{1,60})'",
        means="`torch.onnx.export` in this PyTorch release has no argument `{name}`",
        fix="remove the argument, or pin a PyTorch release that supports it",
        rules=("export-failed", "toolchain-drift"),
        self_explanatory=True,
    ),
    Entry(
        name="torch-name-removed",
        patterns=(
            r"module 'torch\.onnx' has no attribute '(?P<name>\w{1,60})'",
            r"cannot import name '(?P<name>\w{1,60})' from 'torch\.onnx[\w.]{0,60}'",
        ),
        means="`torch.onnx` in this PyTorch release has no `{name}`",
        fix="use `torch.onnx.export`, or pin a PyTorch release that has `{name}`",
        rules=("export-failed", "toolchain-drift"),
        self_explanatory=True,
    ),
    Entry(
        name="torch-onnxscript-missing",
        patterns=(r"No module named 'onnxscript'", r"module 'onnx_ir' has no attribute '(?P<name>\w{1,60})'"),
        means="the `dynamo=True` exporter needs `onnxscript`, which is missing or too old",
        why="PyTorch 2.9 and newer use `onnxscript` by default but do not install it",
        fix="run `pip install 'onnxscript>=0.6'`, or export with `dynamo=False`",
        rules=("export-failed", "toolchain-drift"),
    ),
    Entry(
        name="torch-onnx-missing",
        patterns=r"Module onnx is not installed!",
        means="the TorchScript exporter needs the `onnx` package",
        fix="run `pip install onnx`",
        rules=("export-failed",),
        self_explanatory=True,
    ),
    Entry(
        name="torch-legacy-exporter",
        patterns=r"You are using the legacy TorchScript-based ONNX export",
        means="the model is exported with the TorchScript exporter, which is no longer developed",
        fix="try `dynamo=True`, or keep the current PyTorch version",
        affected="torch 2.9 and newer",
        rules=("toolchain-drift",),
        general=True,
        self_explanatory=True,
    ),
    Entry(
        name="torch-export-failed",
        patterns=(
            r"Failed to export the model with torch\.export",
            r"Failed to convert the exported program to an ONNX model",
            r"Failed to decompose the FX graph for ONNX compatibility",
            r"Error when translating node %",
        ),
        means="the export failed; another error in the same log states the cause",
        fix="resolve the error that caused the failure, or export with `report=True` to get a full report",
        rules=("export-failed", "source-not-exportable"),
        general=True,
    ),
)


OTHER_EXPORTERS = (
    Entry(
        name="sklearn-converter-missing",
        patterns=(
            r"Unable to find (?:a )?(?:shape calculator|converter) for (?:type|alias) '?(?:<class"
            r" ')?(?P<op>[\w.]{1,200})",
            r"MissingShapeCalculator: (?P<op>[^\n]{1,200})",
        ),
        means="skl2onnx has no converter for `{op}`",
        why="the class is not part of scikit-learn, or is newer than the installed skl2onnx",
        example="Unable to find a shape calculator for type '<class 'lightgbm.sklearn.LGBMClassifier'>'",
        source="skl2onnx 1.9 to 1.20: MissingShapeCalculator, MissingConverter",
        fix="register a converter with `skl2onnx.update_registered_converter`, for example one from onnxmltools",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="sklearn-opset-too-new",
        patterns=(
            r"target_opset=?(?P<opset>[^\n]{1,60}?) is higher than (?:the )?(?:latest|most recent)"
            r" (?:supported|tested)",
            r"is higher than the number of the installed onnx package",
        ),
        means="the requested opset is newer than the converter or the installed `onnx` supports",
        fix="remove `target_opset`, or run `pip install --upgrade skl2onnx onnx`",
        rules=("export-failed",),
        example="target_opset 18 is higher than the number of the installed onnx package or the converter"
        " support (15).",
        source="skl2onnx, onnxmltools: convert_sklearn, convert_topology",
    ),
    Entry(
        name="tf2onnx-operator-unsupported",
        patterns=(
            r"Tensorflow op \[(?P<node>[^:\]\n]{0,300}): (?P<op>\w{1,100})\] is not supported",
            r"Unsupported ops: Counter\((?P<op>[^\n]{1,300})\)",
        ),
        means="tf2onnx has no conversion for `{op}`",
        fix="export at a newer opset (`--opset`), or pass `--custom-ops` if the target runtime supports the operator",
        rules=("source-not-exportable", "export-failed"),
        example="Tensorflow op [model/gather: RaggedGather] is not supported",
        source="tf2onnx 1.8 to 1.17: tfonnx.py, log lines",
        self_explanatory=True,
    ),
    Entry(
        name="tf2onnx-keras-3",
        patterns=(
            r"KeyError: 'keras_tensor_\d{1,9}'",
            r"'(?:Functional|Sequential)' object has no attribute 'output_names'",
        ),
        means="tf2onnx cannot read Keras 3 models",
        fix='export with `model.export(path, format="onnx")` or `tf2onnx.convert.from_function`',
        affected="tf2onnx up to 1.17.0",
        rules=("export-failed",),
        example="KeyError: 'keras_tensor_0'",
        source="tf2onnx 1.17.0 with Keras 3",
    ),
    Entry(
        name="jax2onnx-unsupported",
        patterns=(
            r"No plugins? registered for (?:JAX )?primitive '?(?P<op>[\w-]{1,100})",
            r"No ONNX handler registered for JAX primitive: '?(?P<op>[\w-]{1,100})",
        ),
        means="jax2onnx has no conversion for the primitive `{op}`",
        fix="replace this primitive with other operations, or upgrade jax2onnx",
        rules=("source-not-exportable", "export-failed"),
        example="No plugins registered for primitive 'rev'",
        source="jax2onnx 0.4 to 0.17, enpasos/jax2onnx#36",
        self_explanatory=True,
    ),
)


class ExportErrorCause(msgspec.Struct, frozen=True):
    """A known cause of an error during an export, and its fix.

    `exportable` is False if the source contains code that the exporter cannot translate.
    """

    pattern: str  # matched against "Class: text"; compiled on the first failure
    advice: str
    exportable: bool | None = None
    exporter: str = ""  # "" for both exporters


_BRANCH_ADVICE = "use `torch.where` or `torch.cond`, or a condition that does not depend on tensor values"
_OPERATOR_ADVICE = (
    "rewrite `{0}` with operations that ONNX supports, or return a `custom_translation_table` for `{0}` in the source"
)
_CAUSES = (  # Source: both exporters of torch 2.13, see `tests/runtimes/exporters/test_torch_failure_causes.py`.
    ExportErrorCause(r"^GuardOnDataDependentSymNode: ", _BRANCH_ADVICE, False),
    ExportErrorCause(r"^DispatchError: No ONNX function found for <OpOverload\(op='([^']+)'", _OPERATOR_ADVICE, False),
    ExportErrorCause(
        r"^UnsupportedOperatorError: Exporting the operator '([^']+)' to ONNX opset version \d+ is not supported",
        "pin a newer opset, export with `dynamo: True`, or rewrite `{0}` with operations that ONNX supports",
        False,
    ),
    ExportErrorCause(
        r"unrecognized namespace (\S+)",
        "rewrite `{0}` with operations that ONNX supports, or call `torch.onnx.register_custom_op_symbolic` for `{0}`",
        False,
    ),
    ExportErrorCause(
        r"^UserError: Constraints violated \(([^)]+)\)",
        "compute the size of axis `{0}` from `x.shape` instead of using a constant, and use example inputs of size 2 "
        "or "
        "more on each dynamic axis; to allow a fixed size, remove the axis from `dynamic_shapes` or use `Dim.AUTO`",
        False,
    ),
    ExportErrorCause(
        r"conflicts between user-specified ranges and inferred ranges.*static shape of \d+ for dimension "
        r"inputs\['([^']+)'\]\.shape\[(\d+)\]",
        "read `{0}.shape[{1}]` in the source instead of using a constant size, or remove this axis from "
        "`dynamic_shapes`",
        False,
    ),
    ExportErrorCause(r"^UserError: .*[Dd]ynamic.control flow|^UserError: .*data-dependent", _BRANCH_ADVICE, False),
    ExportErrorCause(
        r"did not have observable data dependence with trace inputs",
        "return only tensors that are computed from the inputs",
        False,
    ),
    ExportErrorCause(
        r"^AttributeError: '(int|float|bool|str)' object has no attribute 'name'$",
        "return only tensors; the source returns a value of type `{0}`",
        False,
        "dynamo",
    ),
    ExportErrorCause(
        r"^UserError: When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names",
        "list each parameter of `forward` in `dynamic_shapes` by its exact name, with None for parameters without "
        "dynamic axes",
    ),
    ExportErrorCause(
        r"^UserError: .*`dynamic_shapes`", "give `dynamic_shapes` the same structure as the arguments of `forward`"
    ),
    ExportErrorCause(
        r"(?:Unsupported input|non-tensor) type <class '(?:[\w.]+\.)?\w*Cache'>",
        "register the class of the input with pytree; for a `DynamicCache`, call "
        "`register_dynamic_cache_export_support()` of `transformers.integrations.executorch` in the source",
        exporter="dynamo",
    ),
    ExportErrorCause(
        r"^SpecViolationError: Constant tensor lifted_tensor_\d+ is not in the constants dictionary",
        "pass tensors in lists or tuples instead of an object that creates tensors, and create the object in `forward`",
    ),
    ExportErrorCause(
        r"got multiple values for argument '([^']+)'|takes \d+ positional arguments? but \d+ (?:was|were) given",
        "export with `dynamo: True`, or wrap the module so that `forward` takes its tensors as positional arguments; "
        "the TorchScript exporter passes only positional arguments",
        exporter="TorchScript",
    ),
    ExportErrorCause(
        r"number of (input|output) names provided \((\d+)\) exceeded number of \w+ \((\d+)\)",
        "shorten `{0}_names` to length {2}; the exporter omits {0}s that are unused or None",
    ),
    ExportErrorCause(
        r"[Uu]nsupported.?onnx_opset_version: (\d+)", "request a different opset: this exporter cannot write opset {0}"
    ),
    ExportErrorCause(
        r"^OnnxExporterError: Module onnx is not installed|^ModuleNotFoundError: No module named '([^']+)'",
        "install the missing package in the toolchain's environment, or set `toolchain.python` to an environment that "
        "contains the package",
    ),
    ExportErrorCause(
        r"^RuntimeError: operator (torchvision|torchaudio)::\w+ does not exist",
        "install a release of torchvision and torchaudio that fits PyTorch in the toolchain's environment; "
        "the installed releases do not match",
    ),
    ExportErrorCause(
        r"^AttributeError: module 'onnx_ir' has no attribute",
        "install onnxscript 0.6 or newer in the toolchain's environment; the installed version does not match onnx-ir",
    ),
)


def find_cause(kind: str, text: str, exporter: str) -> ExportErrorCause | None:
    """Return the known cause of an export error, found by the class and text of the error; None if it is not known."""
    for cause in _CAUSES:
        match = re.search(cause.pattern, f"{kind}: {text}")
        if match and cause.exporter in ("", exporter):
            return replace(cause, advice=cause.advice.format(*match.groups(default="")))
    return None
