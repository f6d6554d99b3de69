"""The rule `domain-added`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import INTERNAL_DOMAINS, ModelFacts
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, quote_names

STANDARD_DOMAIN = "ai.onnx.ml"
EXTERNAL_DOMAIN_PREFIXES = ("ai.onnx.", "com.microsoft.", "com.ms.internal.")
"""Prefixes of domains whose operators are never defined as local functions of a model."""


@rule(ModelChange, "domain-added", level=Level.ERROR, since="0.1.0")
def domain_added(subject: ModelChange) -> Iterator[Hit]:
    """
    A model uses operators from a domain that the baseline does not use.

    ## Why it matters
    ONNX Runtime implements `com.microsoft`, and OpenVINO and tract implement some of its operators; other domains
    require a custom operator library. Optimized models use `com.microsoft.nchwc` and run only on machines with a
    similar CPU. For `ai.onnx.ml`, this is a warning.

    ## What to do
    - Export without these operators, and commit the original model instead of the optimized one.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for domain, operators in find_added_domains(subject.before, subject.after).items():
        fix = "export without these operators"
        if domain in INTERNAL_DOMAINS:
            fix = "commit the original model instead of the optimized one"
        elif domain not in ("com.microsoft", STANDARD_DOMAIN):
            fix += ", or deploy the library that registers these operators"
        yield create_breaking_hit(
            subject,
            f"uses {quote_names(operators)} of domain `{domain}`; it did not use this domain {subject.baseline}",
            fix,
            identity=f"{domain} {' '.join(operators)}",
            level=Level.WARNING if domain == STANDARD_DOMAIN else None,
        )


def find_used_domains(facts: ModelFacts) -> dict[str, list[str]]:
    """Map each domain that a model uses, except the default domain, to the operators that it uses from this domain.

    A lock does not record which operators are local functions. If facts from a lock show that the model has
    local functions, only domains with a prefix in `EXTERNAL_DOMAIN_PREFIXES` are returned.
    """
    has_unnamed = has_unnamed_functions(facts)
    imported = {*facts.opsets, *facts.function_opsets} - {"ai.onnx"}
    lengths = sorted(set(map(len, imported)), reverse=True)
    undefined = sorted(facts.operators.keys() - set(facts.functions))
    operators_by_domain: dict[str, list[str]] = {}
    for operator in undefined:
        ends = (length for length in lengths if operator[length : length + 1] == ".")
        spelled = next((operator[:end] for end in ends if operator[:end] in imported), "")
        domain = spelled or operator.rpartition(".")[0]
        if domain and not (has_unnamed and not f"{domain}.".startswith(EXTERNAL_DOMAIN_PREFIXES)):
            operators_by_domain.setdefault(domain, []).append(operator.removeprefix(f"{domain}."))
    return dict(sorted(operators_by_domain.items()))


def find_added_domains(before: ModelFacts, after: ModelFacts) -> dict[str, list[str]]:
    """Map each domain that a model uses only after a change to the operators that it uses from this domain.

    If `before` comes from a lock, a domain also counts as used before if the lock lists one of its operators.
    """
    used = find_used_domains(before)
    counted = before.operators.keys() if has_unnamed_functions(before) else set[str]()
    return {
        domain: operators
        for domain, operators in find_used_domains(after).items()
        if domain not in used and not any(f"{domain}.{operator}" in counted for operator in operators)
    }


def has_unnamed_functions(facts: ModelFacts) -> bool:
    """Return whether the model has local functions whose names are unknown because the facts come from a lock."""
    return bool(facts.function_opsets) and not facts.functions
