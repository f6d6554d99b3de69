"""Answer questions about support, as `onnxgate support` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from onnxgate.commands.known_releases import find_known_releases, list_near_releases
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.core.text import join_quoted, suggest_spelling
from onnxgate.model.facts import DEFAULT_DOMAIN, INTERNAL_DOMAINS
from onnxgate.support.answers.operator_answers import ReleaseDifference, Source, SupportAnswer
from onnxgate.support.answers.queries import describe_operator, describe_release, find_newest_versions, list_operators
from onnxgate.support.answers.release_changes import list_changes, list_operators_by_label
from onnxgate.support.answers.type_names import parse_type_name
from onnxgate.support.limits import load_limit_table
from onnxgate.support.matching.kernels import CPU_PROVIDER
from onnxgate.support.operators import (
    PROBED_ENGINES,
    Operator,
    get_implementation,
    list_known_releases,
    load_shipped_table,
)

_PROVIDER = re.compile(r"[A-Za-z][A-Za-z0-9]*ExecutionProvider")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question to `onnxgate support`: about an operator, about two releases, or about the versions in releases."""

    operator: str | None = None  # such as `Gelu` or `com.microsoft.Gelu`
    types: tuple[str, ...] = ()  # such as `float16` or `T1=float16`
    opset: int | None = None  # of ai.onnx, or of the domain that `operator` names
    ir_version: int | None = None  # without an operator
    newest: bool = False  # which are the newest versions that all releases accept?
    difference: tuple[str, str] | None = None  # the older and the newer release to compare
    runtime: str | None = None  # requirement that selects releases; None: all known ones
    engine: str = ""  # "": the engine of `runtime`, or ONNX Runtime
    provider: str = CPU_PROVIDER  # execution provider whose kernels count


def answer(question: Question) -> SupportAnswer:
    """Return the answer to a question.

    Raises:
        UsageError: a name, a release or the requirement is not valid or not known, or parts cannot be combined.
        OnnxgateError: the kernels of the execution provider are not known.
    """
    _check_combination(question)
    engine, releases = find_known_releases(question.runtime, question.engine)
    _check_provider(engine, question.provider)
    found = SupportAnswer(engine=engine, requirement=question.runtime or "", releases=releases)
    if question.difference is not None:
        found = _compare_releases(found, *question.difference, question.operator)
    elif question.operator is not None:
        found = _describe_operator(found, question.operator, question)
    else:
        newest = find_newest_versions(releases, engine) if question.newest else None
        described = tuple(describe_release(release, engine) for release in releases)
        found = replace(found, opset=question.opset, ir_version=question.ir_version, newest=newest, described=described)
    table = load_shipped_table(engine)
    sources = tuple(
        Source(it.release, it.wheel, it.sha256 if it.sha256.startswith("sha512-") else f"sha256:{it.sha256}")
        for it in table.sources
        if it.release in found.releases
    )
    return replace(found, platform=table.platform, sources=sources)


def _check_combination(question: Question) -> None:
    has_versions = question.newest or question.opset is not None or question.ir_version is not None
    if question.difference is not None:
        if question.runtime is not None or has_versions or question.types:
            raise UsageError("`--diff` cannot be combined with `--runtime`, `--opset`, `--ir-version` or `--type`")
    elif question.operator is not None:
        if question.ir_version is not None:
            hint = "omit one of them; support of an operator does not depend on the IR version"
            raise UsageError("`--ir-version` cannot be combined with an operator", hint=hint)
        if question.newest:
            raise UsageError("`--opset` requires a number with an operator", hint="for example `--opset 20`")
    elif question.newest and question.ir_version is not None:
        raise UsageError("`--opset` requires a number with `--ir-version`", hint="for example `--opset 20`")
    elif question.types:
        raise UsageError("`--type` requires an operator", hint="for example `onnxgate support Gelu --type float16`")
    elif question.runtime is None and not question.engine and not has_versions:
        hint = "for example `onnxgate support Gelu` or `onnxgate support --runtime 'onnxruntime==1.18.1'`"
        raise UsageError("name an operator or releases", hint=hint)


def _check_provider(engine: str, provider: str) -> None:
    if provider == CPU_PROVIDER:
        return
    if engine in PROBED_ENGINES:
        raise UsageError(f"`--provider` cannot be combined with {engine}: only ONNX Runtime has execution providers")
    if provider.lower() in ("cpu", CPU_PROVIDER.lower()):
        raise UsageError(f"unknown execution provider `{provider}`; did you mean `{CPU_PROVIDER}`?")
    if not _PROVIDER.fullmatch(provider):
        hint = "the names end with `ExecutionProvider`, such as `CUDAExecutionProvider`"
        raise UsageError(f"unknown execution provider `{provider}`", hint=hint)
    raise OnnxgateError(
        f"the kernels of `{provider}` are not known: the table of {engine} was read from CPU packages",
        hint="operators that a provider does not support run on the CPU; omit `--provider` to ask whether a model "
        "loads, or run `onnxgate check` with a target that has `providers` and `python`",
    )


def _describe_operator(found: SupportAnswer, label: str, question: Question) -> SupportAnswer:
    """Return the answer with the operator in question, in each domain that has it."""
    opset, engine = question.opset, found.engine
    known = list_known_releases(engine)
    if not known:
        raise OnnxgateError(f"the operators of {engine} are not known, only its versions")
    releases = tuple(release for release in known if release in found.releases)
    if not releases:
        hint = f"kernels are known for {engine} {known[0]}–{known[-1]}"
        raise UsageError(f"the operators of the releases that match `{question.runtime}` are not known", hint=hint)
    domain, name = _resolve_operator(label, engine)
    types = _parse_types(question.types)
    describe = partial(
        describe_operator, name, engine=engine, provider=question.provider, types=types, releases=releases
    )
    if opset is None or domain is not None:
        operators = describe(domain=domain, opset=opset)
    else:  # the opset is that of ai.onnx, on which the versions of operators of other domains do not depend
        operators = tuple(
            row
            for it in describe_operator(name, engine=engine)
            for row in describe(domain=it.domain, opset=opset if it.domain == DEFAULT_DOMAIN else None, ai_onnx=opset)
        )
    if not operators:
        raise _explain_missing_parameter(label, domain, name, engine, types)
    unsupported = [] if opset is None else [it for it in operators if not it.is_supported]
    other_opsets = tuple(row for it in unsupported for row in describe(domain=it.domain))
    return replace(found, releases=releases, operators=operators, other_opsets=other_opsets)


def _resolve_operator(label: str, engine: str) -> tuple[str | None, str]:
    """Return the domain of an operator, None if the label names none, and its name.

    Raises:
        UsageError: no release has the operator.
    """
    table = load_shipped_table(engine).operators
    domain, _, name = label.replace("::", ".").rpartition(".")
    if domain and domain not in table:
        raise UsageError(
            f"no known release of {engine} has the domain `{domain}`{suggest_spelling(domain, table)}",
            hint=f"domains: {', '.join(it for it in table if it not in INTERNAL_DOMAINS)}",
        )
    domains = [domain] if domain else list(table)
    if any(name in table[it] for it in domains):
        return domain or None, name
    prefix = f"{domain}." if domain else ""
    names = {f"{prefix}{it}" for domain_name, it in list_operators(engine) if domain_name in domains}
    elsewhere = [it for it in table if name in table[it]]
    hint = f"it exists in {', '.join(elsewhere)}" if elsewhere else None
    near = "" if hint else suggest_spelling(f"{prefix}{name}", sorted(names))
    raise UsageError(f"no known release of {engine} has an operator `{label}`{near}", hint=hint)


def _parse_types(texts: Iterable[str]) -> dict[str, str]:
    """Return the types of `--type` by parameter; the parameter is "" if it is not named."""
    types: dict[str, str] = {}
    for text in texts:
        parameter, _, name = text.rpartition("=")
        if parameter in types:
            again = f"parameter `{parameter}`" if parameter else "a type without a parameter"
            raise UsageError(f"`--type` is given twice for {again}", hint="name the parameters: `--type T1=float16`")
        types[parameter] = parse_type_name(name)
    return types


def _explain_missing_parameter(
    label: str, domain: str | None, name: str, engine: str, types: Mapping[str, str]
) -> UsageError:
    """Return the error for types of parameters that no version of an operator has."""
    found = describe_operator(name, domain=domain, engine=engine)
    parameters = list(dict.fromkeys(it.parameter for row in found for version in row.versions for it in version.types))
    wrong = next((it for it in types if it and it not in parameters), "")
    if not wrong and "" in types:
        named = join_quoted([it for it in types if it])
        return UsageError(f"`{label}` has no type parameter besides {named}", hint="omit the type without a parameter")
    return UsageError(
        f"`{label}` has no type parameter `{wrong}`{suggest_spelling(wrong, parameters)}",
        hint=f"its type parameters: {', '.join(parameters)}",
    )


def _compare_releases(found: SupportAnswer, older: str, newer: str, label: str | None) -> SupportAnswer:
    """Return the answer with the differences between two releases, or those of an operator."""
    engine = found.engine
    operators = [_list_public_operators(release, engine) for release in (older, newer)]
    if label is not None:
        domain, name = _resolve_operator(label, engine)
        operators = [
            {key: it for key, it in known.items() if it.name == name and domain in (None, it.domain)}
            for known in operators
        ]
    difference = ReleaseDifference(
        older=describe_release(older, engine),
        newer=describe_release(newer, engine),
        changes=list_changes(*operators, noun="support of version" if engine in PROBED_ENGINES else "kernel"),
        operator=label or "",
    )
    return replace(found, releases=(older, newer), difference=difference)


def _list_public_operators(release: str, engine: str) -> dict[str, Operator]:
    """Return the operators of a release by label, without those of internal domains.

    Raises:
        UsageError: they are not known.
    """
    implementation = get_implementation(release, engine)
    if implementation is None:
        known = list_known_releases(engine)
        hint = list_near_releases(release, known)
        if release in load_limit_table(engine).releases:
            hint = f"kernels are known for {known[0]}–{known[-1]}; of older releases, only versions"
        raise UsageError(f"the operators of {engine} {release} are not known", hint=hint)
    operators = list_operators_by_label(implementation)
    return {label: it for label, it in operators.items() if it.domain not in INTERNAL_DOMAINS}
