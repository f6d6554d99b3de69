"""Known error texts of ONNX Runtime about the IR version, opsets and operators of a model.

Which releases are affected is computed from data about the kernels and opsets of each release.
"""

from __future__ import annotations

import functools

from onnxgate.diagnostics.catalogue import CapturedGroups, Entry
from onnxgate.support.limits import find_first_release_for_ir, find_first_release_for_opset, load_limit_table
from onnxgate.support.operators import Implementation, Operator, build_implementations, load_shipped_table


def _captured_domain(captured: CapturedGroups) -> str:
    return captured.get("domain", "ai.onnx")


def _newest_release() -> str:
    return list(load_limit_table().releases)[-1]


def _describe_before(release: str) -> str:
    return f"onnxruntime before {release}" if release else f"all onnxruntime releases up to {_newest_release()}"


def _suggest_upgrade(release: str, feature: str, alternative: str) -> str:
    """Return a fix: upgrade to `release`, the first release that supports `feature`, or use `alternative`.

    If `release` is "", no release supports the feature, and only `alternative` is suggested.
    """
    if release:
        return f"upgrade to onnxruntime {release} or newer, or {alternative}"
    return f"{alternative}; no release up to onnxruntime {_newest_release()} supports {feature}"


def _first_release_with_ir(captured: CapturedGroups) -> str:
    return find_first_release_for_ir(int(captured["version"]))


def _fix_ir(captured: CapturedGroups) -> str:
    lower = f"lower the IR version to {captured['limit']} with `onnxgate fix`"
    return _suggest_upgrade(_first_release_with_ir(captured), f"IR version {captured['version']}", lower)


def _first_release_with_opset(captured: CapturedGroups) -> str:
    return find_first_release_for_opset(_captured_domain(captured), int(captured["opset"]))


def _fix_opset(captured: CapturedGroups) -> str:
    older = f"export at opset {captured['limit']} of `{_captured_domain(captured)}`"
    return _suggest_upgrade(_first_release_with_opset(captured), f"opset {captured['opset']}", older)


@functools.cache
def _load_implementations() -> dict[str, Implementation]:
    return build_implementations(load_shipped_table(), {})


@functools.lru_cache(maxsize=256)
def _split_operator(text: str, since: int = 0) -> tuple[str, str]:
    """Return the domain and the name of an operator in an error text, which may omit the domain.

    An operator without a domain belongs to the domain in which a release has this version of it.
    """
    written, _, name = text.rpartition(".")
    implementations = reversed(_load_implementations().values())
    domains = dict.fromkeys([written or "ai.onnx", *(it for release in implementations for it in release.domains())])
    for domain in [written] if written else domains:
        if _find_kernels(domain, name, since) or _has_version(domain, name, since):
            return domain, name
    return next(((domain, name) for domain in domains if _find_operator(domain, name)), (written or "ai.onnx", name))


def _find_operator(domain: str, name: str) -> Operator | None:
    """Return the operator in the newest release that has it."""
    found = (implementation.operator(domain, name) for implementation in reversed(_load_implementations().values()))
    return next((operator for operator in found if operator), None)


def _has_version(domain: str, name: str, since: int) -> bool:
    operator = _find_operator(domain, name)
    return operator is not None and any(schema.since == since for schema in operator.schemas)


@functools.lru_cache(maxsize=256)
def _find_kernels(domain: str, name: str, since: int) -> dict[str, set[str]]:
    """Map each release that has a kernel for an operator version to the types that this kernel supports.

    The oldest release comes first.
    """
    kernels = {}
    for release, implementation in _load_implementations().items():
        operator = implementation.operator(domain, name)
        rows = operator.kernels if operator else ()
        matching = [row for row in rows if row.start == since or (row.end and row.start <= since <= row.end)]
        if matching:
            kernels[release] = {kind for row in matching for kinds in row.constraints.values() for kind in kinds}
    return kernels


def _describe_kernel(domain: str, name: str, since: int) -> str:
    kernels, newest = _find_kernels(domain, name, since), _newest_release()
    operator = f"`{name}` version {since}"
    if not kernels:
        return f"no release up to onnxruntime {newest} has a CPU kernel for {operator}"
    first, last = next(iter(kernels)), list(kernels)[-1]
    releases = "in every release" if len(kernels) == len(_load_implementations()) else f"since onnxruntime {first}"
    if last != newest:
        releases = f"in onnxruntime {first}–{last}"
    types = [name.removeprefix("tensor(").removesuffix(")") for name in sorted(kernels[last])]
    listed = ", ".join(types[:8]) + (f" and {len(types) - 8} more" if len(types) > 8 else "")
    return f"{operator} has a CPU kernel {releases}" + (f" (types in {last}: {listed})" if types else "")


def _suggest_kernel_fix(domain: str, name: str, since: int) -> str:
    operator = _load_implementations()[_newest_release()].operator(domain, name)
    kernels = _find_kernels(domain, name, since)
    if operator is None or kernels:
        upgrade = ""
        if kernels and next(iter(kernels)) != next(iter(_load_implementations())) and _newest_release() in kernels:
            upgrade = f"upgrade to onnxruntime {next(iter(kernels))} or newer, "
        return f"{upgrade}cast the inputs to a supported type, or export at a different opset"
    versions = [schema.since for schema in operator.schemas if _find_kernels(domain, name, schema.since)]
    of_domain = "" if domain == "ai.onnx" else f" of `{domain}`"
    if newer := [version for version in versions if version > since]:
        how = "" if of_domain else ", or try to convert the model with `onnx.version_converter`"
        return f"export at opset {min(newer)} or newer{of_domain}{how}"
    if versions:
        return f"export at opset {since - 1} or older{of_domain}, which uses version {max(versions)} of the operator"
    return "export with other operators"


def _fix_kernel(captured: CapturedGroups) -> str:
    since = int(captured["since"])
    operator = _split_operator(captured["op"], since)
    return f"{_suggest_kernel_fix(*operator, since)}; {_describe_kernel(*operator, since)}"


def _describe_missing_kernel(captured: CapturedGroups) -> str:
    since = int(captured["since"])
    releases = list(_find_kernels(*_split_operator(captured["op"], since), since))
    if len(releases) == len(_load_implementations()):
        return "all releases, for types without a kernel"
    if releases and releases[-1] == _newest_release():
        return f"{_describe_before(releases[0])}; for types without a kernel, also newer releases"
    return _describe_before("")


def _describe_operator(domain: str, name: str) -> str:
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
    since = f" (since onnxruntime {next(iter(operators))})" if len(operators) < len(implementations) else ""
    return f"`{name}` is in domain `{domain}`{opset}{since}"


def _fix_operator(captured: CapturedGroups) -> str:
    operator = _describe_operator(captured.get("domain") or _split_operator(captured["op"])[0], captured["op"])
    return "export at an opset that has this operator, or correct the operator's name or domain" + (
        f"; {operator}" if operator else ""
    )


def _affected_format(captured: CapturedGroups) -> str:
    if captured.get("version", "") in {"1", "2", "3", "4"}:
        return "onnxruntime 1.13 and newer, mainly minimal builds"
    return "releases older than the release that wrote the file, and minimal builds"


def _fix_unregistered(captured: CapturedGroups) -> str:
    domain = captured.get("domain")
    if operator := _describe_operator(domain or _split_operator(captured["op"])[0], captured["op"]):
        return f"use a release that has this operator; {operator}"
    if domain == "com.microsoft":
        missing = f"no release up to onnxruntime {_newest_release()} has this operator"
        return f"correct the operator's name, or export with other operators; {missing}"
    if domain == "ai.onnx.contrib":
        return (
            "install `onnxruntime-extensions` and register its library:"
            " `options.register_custom_ops_library(onnxruntime_extensions.get_library_path())`"
        )
    return "register the library with `SessionOptions.register_custom_ops_library`, or export without custom operators"


ENTRIES = (
    Entry(
        name="ir-version-too-new",
        patterns=r"Unsupported model IR version: (?P<version>\d{1,9}), max supported IR version: (?P<limit>\d{1,9})",
        means="the model uses IR version {version}; this ONNX Runtime release supports up to {limit}",
        why="the model was saved with a newer `onnx` package",
        fix=_fix_ir,
        anywhere="lower the IR version with `onnxgate fix`",
        affected=lambda captured: _describe_before(_first_release_with_ir(captured)),
        rules=("ir-version-too-new",),
        family="ir",
        self_explanatory=True,
    ),
    Entry(
        name="ir-version-refused",
        patterns=r"Unknown model file format version",
        means="the model's IR version is missing, or newer than this ONNX Runtime release supports",
        fix="upgrade ONNX Runtime, or lower the IR version with `onnxgate fix` "
        "(onnxruntime 1.8 supports IR versions up to 7)",
        affected="onnxruntime 1.8 and older",
        rules=("ir-version-too-new",),
        family="ir",
    ),
    Entry(
        name="ir-version-missing",
        patterns=r"Missing model IR version",
        means="the model has no IR version",
        why="the file may not be an ONNX model",
        fix="if the file is an ONNX model, set `model.ir_version` and save the model",
        rules=("invalid-model",),
        family="ir",
        self_explanatory=True,
    ),
    Entry(
        name="opset-too-new",
        patterns=r"Opset (?P<opset>\d{1,9}) is under development[\s\S]{1,400}?"
        r"domain (?P<domain>\S{1,80}) is till opset (?P<limit>\d{1,9})",
        means="the model imports opset {opset} of `{domain}`; this ONNX Runtime release supports up to {limit}",
        fix=_fix_opset,
        anywhere="export at an opset that every target supports",
        affected=lambda captured: _describe_before(_first_release_with_opset(captured)),
        rules=("opset-too-new", "opset-experimental"),
        family="opset",
    ),
    Entry(
        name="opset-missing",
        patterns=r"Missing opset in the model",
        means="the model imports no opset",
        fix="add an opset import for each operator domain that the model uses",
        rules=("invalid-model",),
        family="opset",
        self_explanatory=True,
    ),
    Entry(
        name="ort-format-version",
        patterns=r"ORT format model version \[(?P<version>[^\]]{0,40})\] is not supported",
        means="the file uses ORT format version {version}, which this build cannot read",
        fix="deploy the `.onnx` file, or convert it to ORT format with the ONNX Runtime release that you deploy",
        affected=_affected_format,
        source="microsoft/onnxruntime#8044, and the corpus of 1.8 to 1.13",
    ),
    Entry(
        name="ort-format-invalid",
        patterns=(
            r"Missing Model\. Invalid ORT format model",
            r"Failed to create (?:graph|node|value_info) from ORT format",
        ),
        means="the ORT format file is incomplete",
        fix="convert the `.onnx` file to ORT format again",
        rules=("not-a-model",),
    ),
    Entry(
        name="kernel-missing",
        patterns=(
            r"Could not find an implementation for the node"
            r" (?P<node>[^:\n]{0,300}):(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)",
            r"Could not find an implementation for (?:the node )?(?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)"
            r"(?: node with name '(?P<node>.{0,300}?)')?",
            r"Failed to find kernel for (?P<op>[\w.]{1,100})\((?P<since>\d{1,9})\)(?:"
            r" \(node:'(?P<node>.{0,300}?)' ep:'(?P<provider>\w{1,60})')?",
        ),
        means="`{op}` version {since} has no kernel for the input and output types of this node",
        fix=_fix_kernel,
        anywhere="cast the inputs to a type for which every target has a kernel",
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
        means="the model contains `ATen`, a PyTorch operator that only training builds of ONNX Runtime support",
        fix="export at a newer opset or with `dynamo=True`",
        rules=("unknown-domain",),
        family="no_op",
    ),
    Entry(
        name="operator-unregistered",
        patterns=(
            r"(?<![\w.])(?P<domain>[\w.]{1,100}):(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
            r"(?<![\w.:])(?P<op>\w{1,100})(?:\(-?\d{1,9}\))? is not a registered function/op",
        ),
        means=(
            "operator `{op}` of domain `{domain}` is not registered",
            "operator `{op}` is not registered",
        ),
        why="its custom operator library is not loaded, or this ONNX Runtime release does not have the operator",
        fix=_fix_unregistered,
        anywhere="add the library to `extensions` of the target, or export with operators that every runtime supports",
        rules=("unknown-operator", "unknown-domain"),
        family="no_op",
    ),
    Entry(
        name="operator-unknown",
        patterns=r"No Op registered for (?P<op>\S{1,100}) with domain_version of (?P<opset>\d{1,9})",
        means="the model imports opset {opset}, which does not define the operator `{op}`",
        why="the operator was added in a newer opset, was renamed, or belongs to a different domain",
        fix=_fix_operator,
        anywhere="export with operators that every runtime supports",
        rules=("unknown-operator",),
        family="no_op",
    ),
    Entry(
        name="domain-not-imported",
        patterns=r"No opset import for domain '(?P<domain>[^'\n]{0,200})'",
        means="a node uses domain `{domain}`, which the model does not import",
        fix='run `model.opset_import.append(onnx.helper.make_opsetid("{domain}", 1))` and save the model',
        rules=("unknown-domain",),
        family="no_import",
    ),
    Entry(
        name="operator-deprecated",
        patterns=r"Op registered for (?P<op>\S{1,100}) is deprecated in domain_version of (?P<opset>\d{1,9})",
        means="`{op}` no longer exists at opset {opset}",
        why="the opset version was raised without converting the nodes",
        fix="re-export, or convert the original model with `onnx.version_converter`",
        rules=("deprecated-operator",),
        family="deprecated",
        self_explanatory=True,
    ),
)
