"""Error texts of PyTorch's two exporters, by `torch.export` and by TorchScript, and of other exporters.

`find_cause` explains them to the export stage, by class and text of the error.
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
        r" (?:expression|symbolic)? ?(?P<said>[^\n]{0,200})",
        means="the model's code decides by the value of a tensor: {said}",
        why="an exported graph has no Python in it; what depends on data must be an operator",
        fix="write it with `torch.cond` or `torch.where`; the lines below the text name the place",
        source="facts: engines A4, GuardOnDataDependentSymNode",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="torch-constraints-violated",
        patterns=(
            r"Constraints violated \((?P<axes>[^)\n]{1,200})\)!",
            r"was (?:marked dynamic|specialized) [^\n]{0,80}(?:inferred to be a )?constant",
        ),
        means="the axis `{axes}` was asked to be dynamic, and the model's code fixes or limits it",
        why="an example batch of 1, a `view` with fixed numbers, or a comparison with a size makes it a constant",
        fix="use example inputs of size 2 or more, and write sizes as `x.shape[0]` or -1; or declare what the"
        " text suggests by axis: a constant, or a relation such as `4 * Dim('w')`",
        rules=("dynamic-axis-lost", "export-failed"),
    ),
    Entry(
        name="torch-example-outside",
        patterns=r"ConstraintViolationError(?:'>)?: (?P<asked>-?\d{1,20}) not in range \[(?P<limit>[^\]\n]{1,60})\]",
        means="an example input has size {asked}, outside of the [{limit}] that its `Dim` allows",
        fix="export with an example of a size inside the range, or change `min` and `max` of the `Dim`",
        rules=("export-failed",),
    ),
    Entry(
        name="torch-script-module",
        patterns=r"Exporting a ScriptModule is not supported",
        means="the exporter of `torch.export` takes no model that went through `torch.jit`",
        fix="give it the `nn.Module` that was scripted, or export with `dynamo=False`",
        affected="torch 2.9 and newer, where this exporter is the default",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="torch-dynamic-shapes",
        patterns=(
            r"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names"
            r" (?P<expected>[^\n]{1,200}?) of `inputs`, but here they are (?P<asked>[^\n.]{1,200})",
            r"only supports dynamic shapes through parameter dynamic_axes",
            r"Detected mismatch between the structure of `inputs` and `dynamic_shapes`",
        ),
        means="`dynamic_shapes` does not fit the inputs, or the exporter",
        fix="name the arguments of `forward`; `dynamo=False` takes `dynamic_axes` instead",
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
        means=("`{op}` can be exported since opset {since}", "the exporter has no translation of `{op}`"),
        why="it has no counterpart in ONNX at this opset, or it is a custom operator",
        fix=(
            "export at opset {since} or newer",
            "export at a newer opset or with a newer PyTorch; give `custom_translation_table` for an operator of"
            " your own, or write that part with other operators",
        ),
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="torch-opset-unsupported",
        patterns=r"Unsupported (?:onnx_opset_version|ONNX opset version): (?P<asked>\d{1,9})",
        means="this exporter cannot write opset {asked}",
        why="TorchScript's exporter ends at an opset that no release raises any more",
        fix="ask for an older opset, or export with `dynamo=True`",
        affected="torch 2.13 with `dynamo=False`: opset 24 and newer",
        rules=("export-failed",),
    ),
    Entry(
        name="torch-opset-ignored",
        patterns=(
            r"Failed to convert the model to the target version (?P<asked>\d{1,9})",
            r"The model version conversion is not supported[^\n]{0,80}",
        ),
        means="the model was not converted to opset {asked}; it was written at the exporter's own opset",
        why="the exporter writes opset 18 and newer, and goes on where the conversion down fails",
        fix="ask for opset 18 or newer, or export with `dynamo=False` for an older one",
        rules=("export-opset-ignored",),
    ),
    Entry(
        name="torch-traced-constant",
        patterns=(
            r"TracerWarning: (?P<said>[^\n]{1,120}) might cause the trace to be incorrect",
            r"TracerWarning: (?P<said>[^\n]{1,120})",
        ),
        means="a decision of the model's code was recorded as it came out for the example inputs",
        why="tracing sees one run only: for other inputs the exported model takes the same branch, and may be wrong",
        fix="write it with `torch.where`, or export with `dynamo=True`, which refuses instead; compare at two sizes",
        rules=("source-mismatch",),
    ),
    Entry(
        name="torch-argument-removed",
        patterns=r"export\(\) got an unexpected keyword argument '(?P<name>\w{1,60})'",
        means="`torch.onnx.export` of this release has no argument `{name}`",
        why="arguments went and came with releases of PyTorch: `fallback`, `operator_export_type`, `example_outputs`",
        fix="leave the argument away, or pin the release of PyTorch that the script was written for",
        rules=("export-failed", "toolchain-drift"),
    ),
    Entry(
        name="torch-name-removed",
        patterns=(
            r"module 'torch\.onnx' has no attribute '(?P<name>\w{1,60})'",
            r"cannot import name '(?P<name>\w{1,60})' from 'torch\.onnx[\w.]{0,60}'",
        ),
        means="`{name}` is not in `torch.onnx` of this release",
        why="`dynamo_export` became `export(dynamo=True)`, and most of `torch.onnx.verification` is gone",
        fix="use `torch.onnx.export`, or pin the release of PyTorch that the script was written for",
        rules=("export-failed", "toolchain-drift"),
    ),
    Entry(
        name="torch-onnxscript-missing",
        patterns=(r"No module named 'onnxscript'", r"module 'onnx_ir' has no attribute '(?P<name>\w{1,60})'"),
        means="the exporter of `torch.export` needs `onnxscript`, which is missing or too old",
        why="PyTorch does not bring it along, and exports this way by default since 2.9",
        fix="install `onnxscript>=0.6` (it brings `onnx_ir`), or export with `dynamo=False`",
        rules=("export-failed", "toolchain-drift"),
    ),
    Entry(
        name="torch-onnx-missing",
        patterns=r"Module onnx is not installed!",
        means="TorchScript's exporter needs the package `onnx`",
        fix="install `onnx` beside PyTorch",
        rules=("export-failed",),
    ),
    Entry(
        name="torch-legacy-exporter",
        patterns=r"You are using the legacy TorchScript-based ONNX export",
        means="the export goes through TorchScript, which is no longer worked on",
        why="`dynamo=False` is asked for; the default changed with PyTorch 2.9",
        fix="try `dynamo=True`; where it must stay, pin PyTorch in the lock",
        affected="torch 2.9 and newer",
        rules=("toolchain-drift",),
        general=True,
    ),
    Entry(
        name="torch-export-failed",
        patterns=(
            r"Failed to export the model with torch\.export",
            r"Failed to convert the exported program to an ONNX model",
            r"Failed to decompose the FX graph for ONNX compatibility",
            r"Error when translating node %",
        ),
        means="the exporter gave up; the cause stands above or below in its report",
        fix="read the exception that it names as the cause; `report=True` writes all of it to a file",
        rules=("export-failed", "source-not-exportable"),
        source="facts: engines A4",
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
        why="the estimator is of another package, or newer than skl2onnx",
        source="skl2onnx 1.9 to 1.20: MissingShapeCalculator, MissingConverter",
        fix="register one with `skl2onnx.update_registered_converter` (onnxmltools has those of XGBoost and LightGBM)",
        rules=("source-not-exportable", "export-failed"),
    ),
    Entry(
        name="sklearn-opset-too-new",
        patterns=(
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
        patterns=(
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
        patterns=(
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
        patterns=r"No plugins? registered for (?:JAX )?primitive '?(?P<op>[\w-]{1,100})",
        means="jax2onnx has no conversion of the primitive `{op}`",
        fix="write that part with other operations, or upgrade jax2onnx",
        rules=("source-not-exportable", "export-failed"),
        source="jax2onnx 0.7 to 0.17",
    ),
)


class ExportErrorCause(msgspec.Struct, frozen=True):
    """One known cause. `exportable` is False if the source contains something that the exporter cannot write."""

    pattern: str  # of "Class: text"; compiled when something failed, and not before
    advice: str
    exportable: bool | None = None
    exporter: str = ""  # "" for both


_BRANCH_ADVICE = "decide by `torch.where` or `torch.cond`, or by what does not depend on values"
_OPERATOR_ADVICE = "write `{0}` with operations that ONNX has, or export by a `command` with a translation of your own"
_CAUSES = (  # Source: both exporters of torch 2.13, by `tests/runtimes/exporters/test_torch_failure_causes.py`.
    ExportErrorCause(r"^GuardOnDataDependentSymNode: ", _BRANCH_ADVICE, False),
    ExportErrorCause(r"^DispatchError: No ONNX function found for <OpOverload\(op='([^']+)'", _OPERATOR_ADVICE, False),
    ExportErrorCause(
        r"^UnsupportedOperatorError: Exporting the operator '([^']+)' to ONNX opset version \d+ is not supported",
        "pin a newer opset, export `{0}` with `dynamo: True`, or write it with operations that ONNX has",
        False,
    ),
    ExportErrorCause(r"unrecognized namespace (\S+)", _OPERATOR_ADVICE, False),
    ExportErrorCause(
        r"^UserError: Constraints violated \(([^)]+)\)",
        "the source fixes `{0}`: leave it symbolic there, leave it out of `dynamic_shapes`, or say `Dim.AUTO`; give "
        "the example at least 2 on each dynamic axis",
        False,
    ),
    ExportErrorCause(
        r"conflicts between user-specified ranges and inferred ranges.*static shape of \d+ for dimension "
        r"inputs\['([^']+)'\]\.shape\[(\d+)\]",
        "the source fixes `{0}.shape[{1}]`: leave it symbolic there, or leave it out of `dynamic_shapes`",
        False,
    ),
    ExportErrorCause(r"^UserError: .*[Dd]ynamic.control flow|^UserError: .*data-dependent", _BRANCH_ADVICE, False),
    ExportErrorCause(
        r"did not have observable data dependence with trace inputs",
        "return tensors that are computed from the inputs, and nothing else",
        False,
    ),
    ExportErrorCause(
        r"^AttributeError: '(int|float|bool|str)' object has no attribute 'name'$",
        "return tensors alone: the source returns a value of type `{0}`",
        False,
        "dynamo",
    ),
    ExportErrorCause(
        r"^UserError: When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names",
        "name in `dynamic_shapes` each parameter of `forward`, spelled as there; None for what is not dynamic",
    ),
    ExportErrorCause(r"^UserError: .*`dynamic_shapes`", "give `dynamic_shapes` the structure of the arguments"),
    ExportErrorCause(
        r"got multiple values for argument '([^']+)'|takes \d+ positional arguments? but \d+ (?:was|were) given",
        "the TorchScript exporter passes all arguments by position: export with `dynamo: True`, or wrap the module in "
        "one whose `forward` takes tensors by position",
        exporter="TorchScript",
    ),
    ExportErrorCause(
        r"number of (input|output) names provided \((\d+)\) exceeded number of \w+ \((\d+)\)",
        "name as many {0}s as the graph has: {2}; one that nothing uses, or that is None, is left out",
    ),
    ExportErrorCause(r"[Uu]nsupported.?onnx_opset_version: (\d+)", "this exporter does not write opset {0}"),
    ExportErrorCause(
        r"^OnnxExporterError: Module onnx is not installed|^ModuleNotFoundError: No module named '([^']+)'",
        "install it in the toolchain, or name an environment that has it as `toolchain.python`",
    ),
    ExportErrorCause(
        r"^AttributeError: module 'onnx_ir' has no attribute",
        "install onnxscript 0.6 or newer in the toolchain: this one does not fit its onnx-ir",
    ),
)


def find_cause(kind: str, text: str, exporter: str) -> ExportErrorCause | None:
    """Return the known cause of an error of that class and text, with advice for it; None for an unknown one."""
    for cause in _CAUSES:
        match = re.search(cause.pattern, f"{kind}: {text}")
        if match and cause.exporter in ("", exporter):
            return replace(cause, advice=cause.advice.format(*match.groups(default="")))
    return None
