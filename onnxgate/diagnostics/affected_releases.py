"""Releases of ONNX Runtime that a failure affects, computed from the support data."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from onnxgate.diagnostics.entry import CapturedGroups
from onnxgate.support.limits import find_first_release_for_ir, find_first_release_for_opset, load_limit_table
from onnxgate.support.operators import Implementation, build_implementations, load_shipped_table

DOMAIN_NAMES = {"": "ai.onnx"}


def captured_domain(captured: CapturedGroups) -> str:
    """Return the domain that a text names; the default one if it names none."""
    name = captured.get("domain", "")
    return DOMAIN_NAMES.get(name, name)


def list_releases() -> list[str]:
    """Return the releases with support data, oldest first."""
    return list(load_limit_table().releases)


def newest_release() -> str:
    """Return the newest release with support data."""
    return list_releases()[-1]


def first_release_with_ir(captured: CapturedGroups) -> str:
    """Return the first release that supports the IR version of the text; "" if there is none."""
    return find_first_release_for_ir(_captured_number(captured, "asked"))


def first_release_with_opset(captured: CapturedGroups) -> str:
    """Return the first release that supports the opset of the text."""
    return find_first_release_for_opset(captured_domain(captured), _captured_number(captured, "asked"))


def _captured_number(captured: CapturedGroups, name: str) -> int:
    text = captured.get(name, "")
    return int(text) if text.isdigit() and len(text) < 10 else 0


def describe_since(release: str) -> str:
    """Return `works since onnxruntime 1.24.1`, or that no release does."""
    return (
        f"works since onnxruntime {release}" if release else f"no release up to onnxruntime {newest_release()} takes it"
    )


def describe_before(release: str) -> str:
    """Return the releases before one, or all if there is none."""
    return f"onnxruntime before {release}" if release else f"every onnxruntime up to {newest_release()}"


@functools.cache
def _load_implementations() -> dict[str, Implementation]:
    return build_implementations(load_shipped_table(), {})


@functools.lru_cache(maxsize=256)
def _find_kernels(domain: str, name: str, since: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return all releases, those with a kernel of this version, and its types in the last of these."""
    every = _load_implementations()

    def kernels(implementation: Implementation) -> list[frozenset[str]]:
        operator = implementation.operator(domain, name)
        rows = operator.kernels if operator else ()
        fitting = [row for row in rows if row.start == since or (row.end and row.start <= since <= row.end)]
        return [types for row in fitting for types in row.constraints.values()] or [frozenset()] * bool(fitting)

    have = [release for release, implementation in every.items() if kernels(implementation)]
    types = sorted({name for kernel in kernels(every[have[-1]]) for name in kernel}) if have else []
    return tuple(every), tuple(have), tuple(types)


def describe_kernel(captured: CapturedGroups) -> str:
    """Describe the releases with a kernel of the operator at that version, and its types."""
    domain, name, since = captured_domain(captured), captured.get("op", ""), _captured_number(captured, "since")
    every, have, types = _find_kernels(domain, name, since)
    if not name:
        return ""
    if not have:
        kernel = f"CPU kernel of `{_replace_backticks(name)}` at version {since}"
        return f"no release up to onnxruntime {every[-1]} has a {kernel}"
    where = "in every release" if have == every else f"since onnxruntime {have[0]}"
    if have[-1] != every[-1]:
        where = f"in onnxruntime {have[0]} to {have[-1]}"
    taken = f", in {have[-1]} for {_join_types(types)}" if types else ""
    return f"`{_replace_backticks(name)}` at version {since} has a CPU kernel {where}{taken}"


def suggest_kernel_fix(captured: CapturedGroups) -> str:
    """Suggest another type, or an opset with kernels of the operator."""
    domain, name, since = captured_domain(captured), captured.get("op", ""), _captured_number(captured, "since")
    operator = _load_implementations()[newest_release()].operator(domain, name)
    if operator is None or _find_kernels(domain, name, since)[1]:
        return "cast to a type that it takes, or export at another opset"
    versions = [schema.since for schema in operator.schemas if _find_kernels(domain, name, schema.since)[1]]
    if newer := [version for version in versions if version > since]:
        return f"convert the model to opset {min(newer)} or newer with `onnx.version_converter`, or export it again"
    if versions:
        return f"export at opset {since - 1} or older: there are kernels of version {max(versions)}"
    return "export with other operators"


def describe_missing_kernel(captured: CapturedGroups) -> str:
    """Return the releases without a kernel of the operator at that version."""
    every, have, _ = _find_kernels(
        captured_domain(captured), captured.get("op", ""), _captured_number(captured, "since")
    )
    if have == every:
        return "every release where the types are others"
    if have and have[-1] == every[-1]:
        return f"{describe_before(have[0])}; newer ones where the types are others"
    return describe_before("")


def describe_operator(captured: CapturedGroups) -> str:
    """Return the domain of an operator, its first opset and its first release."""
    domain, name = captured_domain(captured), captured.get("op", "")
    every = _load_implementations()
    have = {
        release: operator
        for release, implementation in every.items()
        if (operator := implementation.operator(domain, name))
    }
    if not name or not have:
        return ""
    last = have[list(have)[-1]]
    first = min((schema.since for schema in last.schemas), default=0)
    opset = f" since opset {first}" if first and domain.startswith("ai.onnx") else ""
    since = f"; onnxruntime knows it since {next(iter(have))}" if len(have) < len(every) else ""
    return f"`{_replace_backticks(name)}` is in domain `{domain}`{opset}{since}"


def _replace_backticks(text: str) -> str:
    return text.replace("`", "'")


def _join_types(types: Iterable[str]) -> str:
    names = [name.removeprefix("tensor(").removesuffix(")") for name in types]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
