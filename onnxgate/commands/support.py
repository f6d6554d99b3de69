"""Answer questions about support, as `onnxgate support` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from onnxgate.commands.known_releases import find_known_releases, list_near_releases
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.core.text import join_quoted, suggest_spelling
from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, INTERNAL_DOMAINS
from onnxgate.project.engines import is_misspelled
from onnxgate.support.answers import (
    ReleaseDifference,
    ReleaseSupport,
    Source,
    SupportAnswer,
)
from onnxgate.support.changes import list_changes, list_operators_by_label
from onnxgate.support.limits import get_limits, list_table_engines, load_limit_table
from onnxgate.support.matching.kernels import CPU_PROVIDER
from onnxgate.support.operators import get_implementation, list_known_releases, load_shipped_table
from onnxgate.support.queries import describe_operator, find_newest_versions, list_operators

TYPE_ALIASES = {
    "float32": "float",
    "fp32": "float",
    "float64": "double",
    "fp64": "double",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "str": "string",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
}
"""Names of element types in other libraries, and the names in ONNX Runtime."""
_PROVIDER = re.compile(r"[A-Za-z][A-Za-z0-9]*ExecutionProvider")


def answer_about_operator(
    label: str,
    requirement: str | None = None,
    *,
    engine: str = "",
    provider: str = CPU_PROVIDER,
    types: Sequence[str] = (),
    opset: int | None = None,
) -> SupportAnswer:
    """Return which releases support an operator, such as `Gelu` or `com.microsoft.Gelu`.

    `types` are texts such as `float16` or `T1=float16`.

    Raises:
        UsageError: a name or the requirement is not valid or not known.
        OnnxgateError: the kernels of the execution provider are not known.
    """
    engine, matching = _select_releases(requirement, engine)
    known = list_known_releases(engine)
    if not known:
        raise OnnxgateError(f"the operators of {engine} are not known, only its versions")
    _check_provider(engine, provider)
    releases = tuple(release for release in known if release in matching)
    if not releases:
        hint = f"kernels are known for {engine} {known[0]}–{known[-1]}"
        raise UsageError(f"the operators of the releases that match `{requirement}` are not known", hint=hint)
    domain, name = _resolve_operator(label, engine)
    fixed = _parse_types(types)
    describe = partial(describe_operator, name, engine=engine, provider=provider, types=fixed, releases=releases)
    if opset is None or domain is not None:
        operators = describe(domain=domain, opset=opset)
    else:  # the opset is that of ai.onnx, on which the versions of operators of other domains do not depend
        operators = tuple(
            row
            for it in describe_operator(name, engine=engine)
            for row in describe(domain=it.domain, opset=opset if it.domain == DEFAULT_DOMAIN else None, ai_onnx=opset)
        )
    if not operators:
        raise _explain_missing_parameter(label, domain, name, engine, fixed)
    answer = SupportAnswer(
        engine=engine,
        requirement=requirement or "",
        releases=releases,
        operators=operators,
        other_opsets=tuple(
            row for it in operators if opset is not None and not it.is_supported for row in describe(domain=it.domain)
        ),
    )
    return _add_sources(answer)


def answer_about_releases(
    requirement: str | None, *, engine: str = "", provider: str = CPU_PROVIDER, opset: int | None = None
) -> SupportAnswer:
    """Return what each release that matches a requirement accepts; `opset` is an opset of ai.onnx in question.

    Raises:
        UsageError: the requirement is not valid, or no known release matches.
        OnnxgateError: the kernels of the execution provider are not known.
    """
    engine, releases = _select_releases(requirement, engine)
    _check_provider(engine, provider)
    described = tuple(_describe_release(release, engine) for release in releases)
    return _add_sources(
        SupportAnswer(engine=engine, requirement=requirement or "", releases=releases, opset=opset, described=described)
    )


def answer_about_newest_versions(
    requirement: str | None, *, engine: str = "", provider: str = CPU_PROVIDER
) -> SupportAnswer:
    """Return the newest IR version and opsets that all releases that match a requirement accept.

    Raises:
        UsageError: the requirement is not valid, or no known release matches.
    """
    engine, releases = _select_releases(requirement, engine)
    newest = find_newest_versions(releases, engine)
    return replace(answer_about_releases(requirement, engine=engine, provider=provider), newest=newest)


def answer_about_difference(
    older: str, newer: str, label: str = "", *, engine: str = "", provider: str = CPU_PROVIDER
) -> SupportAnswer:
    """Return how two releases differ, or how an operator differs in them.

    Raises:
        UsageError: a release or the operator is not known.
        OnnxgateError: the kernels of the execution provider are not known.
    """
    engine, _ = _select_releases(None, engine)
    _check_provider(engine, provider)
    known = list_known_releases(engine)
    operators = []
    for release in (older, newer):
        implementation = get_implementation(release, engine)
        if implementation is None:
            raise _unknown_release(release, engine, known)
        labels = list_operators_by_label(implementation).items()
        operators.append({it: operator for it, operator in labels if operator.domain not in INTERNAL_DOMAINS})
    if label:
        domain, name = _resolve_operator(label, engine)
        suffix = f"{domain}.{name}" if domain not in (None, DEFAULT_DOMAIN) else name
        operators = [
            {key: it for key, it in found.items() if key == suffix or (domain is None and it.name == name)}
            for found in operators
        ]
    changes = list_changes(*operators)
    difference = ReleaseDifference(_describe_release(older, engine), _describe_release(newer, engine), changes)
    answer = SupportAnswer(engine=engine, requirement="", releases=(older, newer), difference=difference)
    return _add_sources(answer)


def _select_releases(requirement: str | None, engine: str) -> tuple[str, tuple[str, ...]]:
    """Return the engine and its known releases that match the requirement; all of them if there is none."""
    engines = list_table_engines()
    named = canonicalize_name(engine) if engine else ""
    if named and named not in engines:
        near = next((name for name in engines if is_misspelled(named, name)), "")
        meant = f"; did you mean `{near}`?" if near else ""
        raise UsageError(
            f"onnxgate has no support table for `{engine}`{meant}", hint=f"engines with a table: {join_quoted(engines)}"
        )
    found, releases = find_known_releases(named or None if requirement is None else requirement)
    if named and found != named:
        raise UsageError(f"`--runtime` is about {found}, but `--engine` is {named}", hint="omit `--engine`")
    return found, releases


def _unknown_release(release: str, engine: str, known: Sequence[str]) -> UsageError:
    measured = load_limit_table(engine).releases
    text = f"the operators of {engine} {release} are not known"
    if release in measured:
        return UsageError(text, hint=f"kernels are known for {known[0]}–{known[-1]}; of older releases, only versions")
    return UsageError(text, hint=list_near_releases(release, known))


def _check_provider(engine: str, provider: str) -> None:
    if provider == CPU_PROVIDER:
        return
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
    names = {it for domain_name, it in list_operators(engine) if domain_name in domains}
    elsewhere = [it for it in table if name in table[it]]
    hint = f"it exists in {', '.join(elsewhere)}" if elsewhere else None
    near = "" if hint else suggest_spelling(name, sorted(names))
    raise UsageError(f"no known release of {engine} has an operator `{label}`{near}", hint=hint)


def _parse_types(texts: Iterable[str]) -> dict[str, str]:
    """Return the types of `--type` by parameter; the parameter is "" if it is not named."""
    types: dict[str, str] = {}
    for text in texts:
        parameter, _, spelled = text.rpartition("=")
        if parameter in types:
            again = f"parameter `{parameter}`" if parameter else "a type without a parameter"
            raise UsageError(f"`--type` is given twice for {again}", hint="name the parameters: `--type T1=float16`")
        types[parameter] = _parse_type(spelled)
    return types


def _parse_type(spelled: str) -> str:
    """Return a type as in schemas, such as `tensor(float16)` for `half`."""
    text = spelled.strip()
    kind, _, inner = text.removesuffix(")").partition("(")
    if not text.endswith(")") or kind not in ("seq", "optional", "map", "sparse_tensor"):
        return f"tensor({_parse_element(text)})"
    if kind == "map":
        key, _, value = inner.partition(",")
        return f"map({_parse_element(key)},{_parse_type(value)})"
    return f"{kind}({_parse_element(inner) if kind == 'sparse_tensor' else _parse_type(inner)})"


def _parse_element(spelled: str) -> str:
    names = [element.name for element in ELEMENT_TYPES.values()]
    text = spelled.strip()
    element = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor(") else text
    element = TYPE_ALIASES.get(element.lower(), element.lower())
    if element not in names:
        raise UsageError(
            f"unknown type `{text}`{suggest_spelling(element, (*names, *TYPE_ALIASES))}",
            hint=f"types: {', '.join(names)}",
        )
    return element


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


def _describe_release(release: str, engine: str) -> ReleaseSupport:
    limits, implementation = get_limits(release, engine), get_implementation(release, engine)
    assert limits is not None
    operators = None
    if implementation is not None:
        operators = {
            domain: count
            for domain in implementation.domains()
            if domain not in INTERNAL_DOMAINS
            and (
                count := sum(
                    bool(operator and operator.kernels)
                    for name in implementation.operators(domain)
                    for operator in (implementation.operator(domain, name),)
                )
            )
        }
    layouts = limits.external_data
    return ReleaseSupport(
        release=release,
        ir_version=limits.ir,
        opsets=limits.opsets,
        unreleased_opsets=limits.dev_opsets,
        external_data=None if layouts is None else {it: getattr(layouts, it) for it in layouts.__struct_fields__},
        operators=operators,
    )


def _add_sources(answer: SupportAnswer) -> SupportAnswer:
    table = load_shipped_table(answer.engine)
    sources = tuple(
        Source(source.release, source.wheel, source.sha256)
        for source in table.sources
        if source.release in answer.releases
    )
    return replace(answer, platform=table.platform, sources=sources)
