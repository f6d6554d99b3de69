"""Why exports fail: what is known by class and text of the error, and what to write instead.

Source: messages of both exporters of torch 2.13, provoked by `tests/runtimes/exporters/test_torch_failure_causes.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportErrorCause:
    """One known cause. `exportable` is False where the source has what the exporter cannot write down."""

    pattern: str  # of "Class: text"; compiled when something failed, and not before
    advice: str
    exportable: bool | None = None
    exporter: str = ""  # "" for both


def _create_cause(pattern: str, advice: str, exportable: bool | None = None, exporter: str = "") -> ExportErrorCause:
    return ExportErrorCause(pattern, advice, exportable, exporter)


_BRANCH_ADVICE = "decide by `torch.where` or `torch.cond`, or by what does not depend on values"
_OPERATOR_ADVICE = "write `{0}` with operations that ONNX has, or export by a `command` with a translation of your own"
_CAUSES = (
    _create_cause(r"^GuardOnDataDependentSymNode: ", _BRANCH_ADVICE, False),
    _create_cause(r"^DispatchError: No ONNX function found for <OpOverload\(op='([^']+)'", _OPERATOR_ADVICE, False),
    _create_cause(
        r"^UnsupportedOperatorError: Exporting the operator '([^']+)' to ONNX opset version \d+ is not supported",
        "pin a newer opset, export `{0}` with `dynamo: True`, or write it with operations that ONNX has",
        False,
    ),
    _create_cause(r"unrecognized namespace (\S+)", _OPERATOR_ADVICE, False),
    _create_cause(
        r"^UserError: Constraints violated \(([^)]+)\)",
        "the source fixes `{0}`: leave it symbolic there, leave it out of `dynamic_shapes`, or say `Dim.AUTO`; give "
        "the example at least 2 on each dynamic axis",
        False,
    ),
    _create_cause(
        r"conflicts between user-specified ranges and inferred ranges.*static shape of \d+ for dimension "
        r"inputs\['([^']+)'\]\.shape\[(\d+)\]",
        "the source fixes `{0}.shape[{1}]`: leave it symbolic there, or leave it out of `dynamic_shapes`",
        False,
    ),
    _create_cause(
        r"^UserError: .*[Dd]ynamic.control flow|^UserError: .*data-dependent",
        _BRANCH_ADVICE,
        False,
    ),
    _create_cause(
        r"did not have observable data dependence with trace inputs",
        "return tensors that are computed from the inputs, and nothing else",
        False,
    ),
    _create_cause(
        r"^AttributeError: '(int|float|bool|str)' object has no attribute 'name'$",
        "return tensors alone: the source returns a value of type `{0}`",
        False,
        "dynamo",
    ),
    _create_cause(
        r"^UserError: When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names",
        "name in `dynamic_shapes` each parameter of `forward`, spelled as there; None for what is not dynamic",
    ),
    _create_cause(r"^UserError: .*`dynamic_shapes`", "give `dynamic_shapes` the structure of the arguments"),
    _create_cause(
        r"got multiple values for argument '([^']+)'|takes \d+ positional arguments? but \d+ (?:was|were) given",
        "the TorchScript exporter passes all arguments by position: export with `dynamo: True`, or wrap the module in "
        "one whose `forward` takes tensors by position",
        exporter="TorchScript",
    ),
    _create_cause(
        r"number of (input|output) names provided \((\d+)\) exceeded number of \w+ \((\d+)\)",
        "name as many {0}s as the graph has: {2}; one that nothing uses, or that is None, is left out",
    ),
    _create_cause(r"[Uu]nsupported.?onnx_opset_version: (\d+)", "this exporter does not write opset {0}"),
    _create_cause(
        r"^OnnxExporterError: Module onnx is not installed|^ModuleNotFoundError: No module named '([^']+)'",
        "install it in the toolchain, or name an environment that has it as `toolchain.python`",
    ),
    _create_cause(
        r"^AttributeError: module 'onnx_ir' has no attribute",
        "install onnxscript 0.6 or newer in the toolchain: this one does not fit its onnx-ir",
    ),
)


def find_cause(kind: str, text: str, exporter: str) -> ExportErrorCause | None:
    """The known cause of an error of that class and text, with what to write instead; None where it is not known."""
    said = f"{kind}: {text}"
    for cause in _CAUSES:
        found = re.search(cause.pattern, said)
        if found and cause.exporter in ("", exporter):
            parts = [group or "" for group in found.groups()]
            return ExportErrorCause(cause.pattern, cause.advice.format(*parts), cause.exportable, cause.exporter)
    return None
