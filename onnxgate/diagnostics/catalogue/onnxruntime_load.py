"""Error texts of ONNX Runtime that refuse a model for its IR version, opsets or operators."""

from __future__ import annotations

from onnxgate.diagnostics.affected_releases import (
    captured_domain,
    describe_before,
    describe_kernel,
    describe_missing_kernel,
    describe_operator,
    describe_since,
    first_release_with_ir,
    first_release_with_opset,
    newest_release,
    suggest_kernel_fix,
)
from onnxgate.diagnostics.entry import CapturedGroups, Entry


def _fix_ir(captured: CapturedGroups) -> str:
    stamped = f"stamp the IR version down to {captured['limit']}" if "limit" in captured else "stamp it down"
    return f"{describe_since(first_release_with_ir(captured))}; or {stamped} with `onnxgate fix`"


def _fix_opset(captured: CapturedGroups) -> str:
    limit = (
        f"at opset {captured['limit']} of `{captured_domain(captured)}`" if "limit" in captured else "at an older opset"
    )
    return f"{describe_since(first_release_with_opset(captured))}; or export {limit}"


def _fix_kernel(captured: CapturedGroups) -> str:
    operator = describe_kernel(captured)
    return (f"{operator}; " if operator else "") + suggest_kernel_fix(captured)


def _fix_operator(captured: CapturedGroups) -> str:
    operator = describe_operator(captured)
    return (f"{operator}; " if operator else "") + "export at an opset that has it, or correct its name or domain"


def _affected_format(captured: CapturedGroups) -> str:
    if captured.get("asked", "") in {"1", "2", "3", "4"}:
        return "onnxruntime 1.13 and newer, minimal builds above all"
    return "releases older than the one that wrote the file, and minimal builds"


def _fix_unregistered(captured: CapturedGroups) -> str:
    if captured.get("domain") in ("com.microsoft", None):
        operator = describe_operator({"domain": "com.microsoft", **captured})
        if operator:
            return f"{operator}; use a release that has it"
        if "domain" in captured:
            missing = f"no release up to onnxruntime {newest_release()} has it"
            return f"{missing}; correct its name, or export with other operators"
    if captured.get("domain") == "ai.onnx.contrib":
        return (
            "install `onnxruntime-extensions`, and register its library:"
            " `options.register_custom_ops_library(onnxruntime_extensions.get_library_path())`"
        )
    return "register the library with `SessionOptions.register_custom_ops_library`, or export without custom operators"


ENTRIES = (
    Entry(
        name="ir-version-too-new",
        says=(r"Unsupported model IR version: (?P<asked>\d{1,9}), max supported IR version: (?P<limit>\d{1,9})",),
        means="the model is stamped with IR version {asked}, newer than this release reads",
        why="the `onnx` package that wrote it is newer than the runtime; the IR version alone says nothing about"
        " operators",
        fix=_fix_ir,
        anywhere="stamp the IR version down with `onnxgate fix`, or raise the target's version",
        affected=lambda captured: describe_before(first_release_with_ir(captured)),
        rules=("ir-version-too-new",),
        family="ir",
    ),
    Entry(
        name="ir-version-refused",
        says=(r"Unknown model file format version",),
        means="the model's IR version is newer than this release reads, or it has none",
        fix="upgrade ONNX Runtime, or stamp the IR version down with `onnxgate fix`: 1.8 reads 7 at most",
        affected="onnxruntime 1.8 and older; newer ones name the numbers",
        rules=("ir-version-too-new",),
        family="ir",
    ),
    Entry(
        name="ir-version-missing",
        says=(r"Missing model IR version",),
        means="the model has no IR version",
        why="what wrote the file left a required field out, or it is no ONNX model at all",
        fix="set `model.ir_version` and save it again; `onnx.checker` tells what else is missing",
        rules=("invalid-model",),
        family="ir",
    ),
    Entry(
        name="opset-too-new",
        says=(
            r"Opset (?P<asked>\d{1,9}) is under development[\s\S]{1,400}?"
            r"domain (?P<domain>\S{1,80}) is till opset (?P<limit>\d{1,9})",
        ),
        means="the model imports opset {asked} of `{domain}`, newer than the {limit} that this release implements",
        why="the exporter stamped a newer opset than the runtime was built for",
        fix=_fix_opset,
        anywhere="export at the newest opset that all targets implement, or raise the target's version",
        affected=lambda captured: describe_before(first_release_with_opset(captured)),
        rules=("opset-too-new", "opset-experimental"),
        family="opset",
    ),
    Entry(
        name="opset-missing",
        says=(r"Missing opset in the model",),
        means="the model imports no opset",
        why="what wrote the file left a required field out",
        fix="add an opset import for each domain that is used, and save it again",
        rules=("invalid-model",),
        family="opset",
    ),
    Entry(
        name="ort-format-version",
        says=(r"ORT format model version \[(?P<asked>[^\]]{0,40})\] is not supported",),
        means="the file is in ONNX Runtime's own format, version {asked}, which this build does not read",
        why="`.ort` files are bound to the release that wrote them: full builds read the format of 1.13 and newer",
        fix="convert the `.onnx` file again with the same release, or ship the `.onnx` file",
        affected=_affected_format,
        source="microsoft/onnxruntime#8044, and the corpus of 1.8 to 1.13",
    ),
    Entry(
        name="ort-format-invalid",
        says=(
            r"Missing Model\. Invalid ORT format model",
            r"Failed to create (?:graph|node|value_info) from ORT format",
        ),
        means="the file says that it is in ONNX Runtime's own format, and is not whole",
        fix="convert the `.onnx` file again with the release that loads it",
        rules=("not-a-model",),
    ),
    Entry(
        name="kernel-missing",
        says=(
            r"Could not find an implementation for the node"
            r" (?P<node>[^():]{0,300}):(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)",
            r"Could not find an implementation for (?:the node )?(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)"
            r"(?: node with name '(?P<node>.{0,300}?)')?",
            r"Failed to find kernel for (?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)(?:"
            r" \(node:'(?P<node>.{0,300}?)' ep:'(?P<provider>\w{1,60})')?",
        ),
        means="no kernel of `{op}` at version {since} takes these types here",
        why="an operator is implemented per version and per type; a kernel that is registered for an older"
        " version of the"
        " operator does not serve the newer one",
        fix=_fix_kernel,
        anywhere="cast to a type that every runtime implements there, or raise the target's version",
        affected=describe_missing_kernel,
        rules=("missing-kernel",),
        family="no_kernel",
    ),
    Entry(
        name="operator-aten",
        says=(
            r"(?P<domain>org\.pytorch\.aten):(?P<op>ATen)(?:\(-?\d{1,9}\))? is not a registered function/op",
            r"Fatal error: (?:ai\.onnx:)?(?P<op>ATen)(?:\(-?\d{1,9}\))? is not a registered function/op",
        ),
        means="the exporter left an operator of PyTorch in the model that ONNX has no counterpart of",
        why="it was exported with a fallback to ATen, which only ONNX Runtime's training builds run",
        fix="export without the fallback, at a newer opset or with the exporter of `torch.export`, or rewrite"
        " that part",
        rules=("unknown-domain",),
        family="no_op",
    ),
    Entry(
        name="operator-unregistered",
        says=(
            r"(?<![\w.])(?P<domain>[\w.]{1,100}):(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
            r"(?<![\w.:])(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
        ),
        means=("nobody registered the operator `{op}` of domain `{domain}`", "nobody registered the operator `{op}`"),
        why="it is a custom operator whose library is not loaded, or an operator of `com.microsoft` that this"
        " release does"
        " not have",
        fix=_fix_unregistered,
        anywhere="register the library with `extensions` of the target, or export with operators that every"
        " runtime knows",
        rules=("unknown-operator", "unknown-domain"),
        family="no_op",
    ),
    Entry(
        name="operator-unknown",
        says=(r"No Op registered for (?P<op>\S{1,100}) with domain_version of (?P<opset>\d{1,9})",),
        means="the opset that the model imports ({opset}) has no operator `{op}`",
        why="the operator is newer than the imported opset, was renamed, or belongs to another domain",
        fix=_fix_operator,
        anywhere="export with operators that every runtime knows, or raise the target's version",
        rules=("unknown-operator",),
        family="no_op",
    ),
    Entry(
        name="domain-not-imported",
        says=(r"No opset import for domain '(?P<domain>[^'\n]{0,200})'",),
        means="a node is of domain `{domain}`, which the model does not import",
        fix='import the operator\'s domain in the model: `helper.make_opsetid("{domain}", 1)` among its opset imports',
        rules=("unknown-domain",),
        family="no_import",
    ),
    Entry(
        name="operator-deprecated",
        says=(r"Op registered for (?P<op>\S{1,100}) is deprecated in domain_version of (?P<opset>\d{1,9})",),
        means="`{op}` was taken out of ONNX before opset {opset}",
        why="an old graph was stamped with a newer opset without being converted",
        fix="export it again at this opset, or convert it with `onnx.version_converter` (`Upsample` becomes `Resize`,"
        " `Scatter` becomes `ScatterElements`)",
        rules=("deprecated-operator",),
        family="deprecated",
    ),
)
