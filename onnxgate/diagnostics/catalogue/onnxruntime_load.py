"""Error texts of ONNX Runtime that refuse a model for its IR version, opsets or operators.

The releases that a text concerns are computed from the support data.
"""

from __future__ import annotations

import functools

from onnxgate.diagnostics.catalogue import CapturedGroups, Entry
from onnxgate.support.limits import find_first_release_for_ir, find_first_release_for_opset, load_limit_table
from onnxgate.support.operators import Implementation, build_implementations, load_shipped_table


def _captured_domain(captured: CapturedGroups) -> str:
    return captured.get("domain", "ai.onnx")


def _newest_release() -> str:
    return list(load_limit_table().releases)[-1]


def _describe_before(release: str) -> str:
    """Return the releases before one, or all if there is none."""
    return f"onnxruntime before {release}" if release else f"every onnxruntime up to {_newest_release()}"


def _describe_since(release: str) -> str:
    if release:
        return f"works since onnxruntime {release}"
    return f"no release up to onnxruntime {_newest_release()} takes it"


def _first_release_with_ir(captured: CapturedGroups) -> str:
    return find_first_release_for_ir(int(captured["asked"]))


def _fix_ir(captured: CapturedGroups) -> str:
    stamped = f"stamp the IR version down to {captured['limit']}"
    return f"{_describe_since(_first_release_with_ir(captured))}; or {stamped} with `onnxgate fix`"


def _first_release_with_opset(captured: CapturedGroups) -> str:
    return find_first_release_for_opset(_captured_domain(captured), int(captured["asked"]))


def _fix_opset(captured: CapturedGroups) -> str:
    since = _describe_since(_first_release_with_opset(captured))
    return f"{since}; or export at opset {captured['limit']} of `{_captured_domain(captured)}`"


@functools.cache
def _load_implementations() -> dict[str, Implementation]:
    return build_implementations(load_shipped_table(), {})


@functools.lru_cache(maxsize=256)
def _find_kernels(name: str, since: int) -> dict[str, set[str]]:
    """Return the releases with a kernel of this version, oldest first, and its types."""
    kernels = {}
    for release, implementation in _load_implementations().items():
        operator = implementation.operator("ai.onnx", name)
        rows = operator.kernels if operator else ()
        fitting = [row for row in rows if row.start == since or (row.end and row.start <= since <= row.end)]
        if fitting:
            kernels[release] = {kind for row in fitting for kinds in row.constraints.values() for kind in kinds}
    return kernels


def _describe_kernel(name: str, since: int) -> str:
    """Describe the releases with a kernel of the operator at that version, and its types."""
    kernels, newest = _find_kernels(name, since), _newest_release()
    operator = f"`{name}` at version {since}"
    if not kernels:
        return f"no release up to onnxruntime {newest} has a CPU kernel of {operator}"
    first, last = next(iter(kernels)), list(kernels)[-1]
    releases = "in every release" if len(kernels) == len(_load_implementations()) else f"since onnxruntime {first}"
    if last != newest:
        releases = f"in onnxruntime {first} to {last}"
    types = [name.removeprefix("tensor(").removesuffix(")") for name in sorted(kernels[last])]
    listed = ", ".join(types[:8]) + (f" and {len(types) - 8} more" if len(types) > 8 else "")
    return f"{operator} has a CPU kernel {releases}" + (f", in {last} for {listed}" if types else "")


def _suggest_kernel_fix(name: str, since: int) -> str:
    """Suggest another type, or an opset with kernels of the operator."""
    operator = _load_implementations()[_newest_release()].operator("ai.onnx", name)
    if operator is None or _find_kernels(name, since):
        return "cast to a type that it takes, or export at another opset"
    versions = [schema.since for schema in operator.schemas if _find_kernels(name, schema.since)]
    if newer := [version for version in versions if version > since]:
        return f"convert the model to opset {min(newer)} or newer with `onnx.version_converter`, or export it again"
    if versions:
        return f"export at opset {since - 1} or older: there are kernels of version {max(versions)}"
    return "export with other operators"


def _fix_kernel(captured: CapturedGroups) -> str:
    name, since = captured["op"], int(captured["since"])
    return f"{_describe_kernel(name, since)}; {_suggest_kernel_fix(name, since)}"


def _describe_missing_kernel(captured: CapturedGroups) -> str:
    """Return the releases without a kernel of the operator at that version."""
    releases = list(_find_kernels(captured["op"], int(captured["since"])))
    if len(releases) == len(_load_implementations()):
        return "every release where the types are others"
    if releases and releases[-1] == _newest_release():
        return f"{_describe_before(releases[0])}; newer ones where the types are others"
    return _describe_before("")


def _describe_operator(domain: str, name: str) -> str:
    """Return the domain of an operator, its first opset and its first release; "" for an unknown one."""
    implementations = _load_implementations()
    operators = {
        release: operator
        for release, implementation in implementations.items()
        if (operator := implementation.operator(domain, name))
    }
    if not operators:
        return ""
    first = min((schema.since for schema in list(operators.values())[-1].schemas), default=0)
    opset = f" since opset {first}" if first and domain.startswith("ai.onnx") else ""
    since = f"; onnxruntime knows it since {next(iter(operators))}" if len(operators) < len(implementations) else ""
    return f"`{name}` is in domain `{domain}`{opset}{since}"


def _fix_operator(captured: CapturedGroups) -> str:
    operator = _describe_operator(_captured_domain(captured), captured["op"])
    return (f"{operator}; " if operator else "") + "export at an opset that has it, or correct its name or domain"


def _affected_format(captured: CapturedGroups) -> str:
    if captured.get("asked", "") in {"1", "2", "3", "4"}:
        return "onnxruntime 1.13 and newer, minimal builds above all"
    return "releases older than the one that wrote the file, and minimal builds"


def _fix_unregistered(captured: CapturedGroups) -> str:
    domain = captured.get("domain")
    if domain in ("com.microsoft", None):
        if operator := _describe_operator("com.microsoft", captured["op"]):
            return f"{operator}; use a release that has it"
        if domain:
            missing = f"no release up to onnxruntime {_newest_release()} has it"
            return f"{missing}; correct its name, or export with other operators"
    if domain == "ai.onnx.contrib":
        return (
            "install `onnxruntime-extensions`, and register its library:"
            " `options.register_custom_ops_library(onnxruntime_extensions.get_library_path())`"
        )
    return "register the library with `SessionOptions.register_custom_ops_library`, or export without custom operators"


ENTRIES = (
    Entry(
        name="ir-version-too-new",
        patterns=r"Unsupported model IR version: (?P<asked>\d{1,9}), max supported IR version: (?P<limit>\d{1,9})",
        means="the model is stamped with IR version {asked}, newer than this release reads",
        why="the `onnx` package that wrote it is newer than the runtime; the IR version alone says nothing about"
        " operators",
        fix=_fix_ir,
        anywhere="stamp the IR version down with `onnxgate fix`, or raise the target's version",
        affected=lambda captured: _describe_before(_first_release_with_ir(captured)),
        rules=("ir-version-too-new",),
        family="ir",
    ),
    Entry(
        name="ir-version-refused",
        patterns=r"Unknown model file format version",
        means="the model's IR version is newer than this release reads, or it has none",
        fix="upgrade ONNX Runtime, or stamp the IR version down with `onnxgate fix`: 1.8 reads 7 at most",
        affected="onnxruntime 1.8 and older; newer ones name the numbers",
        rules=("ir-version-too-new",),
        family="ir",
    ),
    Entry(
        name="ir-version-missing",
        patterns=r"Missing model IR version",
        means="the model has no IR version",
        why="what wrote the file left a required field out, or it is no ONNX model at all",
        fix="set `model.ir_version` and save it again; `onnx.checker` tells what else is missing",
        rules=("invalid-model",),
        family="ir",
    ),
    Entry(
        name="opset-too-new",
        patterns=r"Opset (?P<asked>\d{1,9}) is under development[\s\S]{1,400}?"
        r"domain (?P<domain>\S{1,80}) is till opset (?P<limit>\d{1,9})",
        means="the model imports opset {asked} of `{domain}`, newer than the {limit} that this release implements",
        why="the exporter stamped a newer opset than the runtime was built for",
        fix=_fix_opset,
        anywhere="export at the newest opset that all targets implement, or raise the target's version",
        affected=lambda captured: _describe_before(_first_release_with_opset(captured)),
        rules=("opset-too-new", "opset-experimental"),
        family="opset",
    ),
    Entry(
        name="opset-missing",
        patterns=r"Missing opset in the model",
        means="the model imports no opset",
        why="what wrote the file left a required field out",
        fix="add an opset import for each domain that is used, and save it again",
        rules=("invalid-model",),
        family="opset",
    ),
    Entry(
        name="ort-format-version",
        patterns=r"ORT format model version \[(?P<asked>[^\]]{0,40})\] is not supported",
        means="the file is in ONNX Runtime's own format, version {asked}, which this build does not read",
        why="`.ort` files are bound to the release that wrote them: full builds read the format of 1.13 and newer",
        fix="convert the `.onnx` file again with the same release, or ship the `.onnx` file",
        affected=_affected_format,
        source="microsoft/onnxruntime#8044, and the corpus of 1.8 to 1.13",
    ),
    Entry(
        name="ort-format-invalid",
        patterns=(
            r"Missing Model\. Invalid ORT format model",
            r"Failed to create (?:graph|node|value_info) from ORT format",
        ),
        means="the file says that it is in ONNX Runtime's own format, and is not whole",
        fix="convert the `.onnx` file again with the release that loads it",
        rules=("not-a-model",),
    ),
    Entry(
        name="kernel-missing",
        patterns=(
            r"Could not find an implementation for the node"
            r" (?P<node>[^():]{0,300}):(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)",
            r"Could not find an implementation for (?:the node )?(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)"
            r"(?: node with name '(?P<node>.{0,300}?)')?",
            r"Failed to find kernel for (?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)(?:"
            r" \(node:'(?P<node>.{0,300}?)' ep:'(?P<provider>\w{1,60})')?",
        ),
        means="no kernel of `{op}` at version {since} takes these types here",
        why="an operator is implemented per version and per type; a kernel that is registered for an older version of"
        " the operator does not serve the newer one",
        fix=_fix_kernel,
        anywhere="cast to a type that every runtime implements there, or raise the target's version",
        affected=_describe_missing_kernel,
        rules=("missing-kernel",),
        family="no_kernel",
    ),
    Entry(
        name="operator-aten",
        patterns=(
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
        patterns=(
            r"(?<![\w.])(?P<domain>[\w.]{1,100}):(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
            r"(?<![\w.:])(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
        ),
        means=("nobody registered the operator `{op}` of domain `{domain}`", "nobody registered the operator `{op}`"),
        why="it is a custom operator whose library is not loaded, or an operator of `com.microsoft` that this release"
        " does not have",
        fix=_fix_unregistered,
        anywhere="register the library with `extensions` of the target, or export with operators that every"
        " runtime knows",
        rules=("unknown-operator", "unknown-domain"),
        family="no_op",
    ),
    Entry(
        name="operator-unknown",
        patterns=r"No Op registered for (?P<op>\S{1,100}) with domain_version of (?P<opset>\d{1,9})",
        means="the opset that the model imports ({opset}) has no operator `{op}`",
        why="the operator is newer than the imported opset, was renamed, or belongs to another domain",
        fix=_fix_operator,
        anywhere="export with operators that every runtime knows, or raise the target's version",
        rules=("unknown-operator",),
        family="no_op",
    ),
    Entry(
        name="domain-not-imported",
        patterns=r"No opset import for domain '(?P<domain>[^'\n]{0,200})'",
        means="a node is of domain `{domain}`, which the model does not import",
        fix='import the operator\'s domain in the model: `helper.make_opsetid("{domain}", 1)` among its opset imports',
        rules=("unknown-domain",),
        family="no_import",
    ),
    Entry(
        name="operator-deprecated",
        patterns=r"Op registered for (?P<op>\S{1,100}) is deprecated in domain_version of (?P<opset>\d{1,9})",
        means="`{op}` was taken out of ONNX before opset {opset}",
        why="an old graph was stamped with a newer opset without being converted",
        fix="export it again at this opset, or convert it with `onnx.version_converter` (`Upsample` becomes `Resize`,"
        " `Scatter` becomes `ScatterElements`)",
        rules=("deprecated-operator",),
        family="deprecated",
    ),
)
