"""Domains of which a model uses operators that its file does not define itself."""

from __future__ import annotations

from collections.abc import Iterable

from onnxgate.model.facts import ModelFacts

KNOWN = ("ai.onnx.", "com.microsoft.", "com.ms.internal.")
"""What domains begin with that no file defines functions of."""


def used_domains(facts: ModelFacts) -> dict[str, list[str]]:
    """Domain -> the operators that are used of it, both sorted; without the default domain.

    A lock counts the calls of local functions and does not say which they are: where a model has any, only what
    nobody defines in a file is told.
    """
    unsaid = is_unsaid(facts)
    imported = sorted({*facts.opsets, *facts.function_opsets} - {"ai.onnx"}, key=len, reverse=True)
    undefined = sorted(facts.operators.keys() - set(facts.functions))
    found: dict[str, list[str]] = {}
    for operator in undefined:
        domain = _domain(operator, imported)
        if domain and not (unsaid and not f"{domain}.".startswith(KNOWN)):
            found.setdefault(domain, []).append(operator.removeprefix(f"{domain}."))
    return dict(sorted(found.items()))


def added_domains(before: ModelFacts, after: ModelFacts) -> dict[str, list[str]]:
    """The domains that only `after` uses. One that a lock counted an operator of may have been used before."""
    used = used_domains(before)
    counted = before.operators.keys() if is_unsaid(before) else set[str]()
    return {
        domain: operators
        for domain, operators in used_domains(after).items()
        if domain not in used and not any(f"{domain}.{operator}" in counted for operator in operators)
    }


def is_unsaid(facts: ModelFacts) -> bool:
    """Whether there are local functions, and nobody says which: the facts are a lock's."""
    return bool(facts.function_opsets) and not facts.functions


def _domain(operator: str, imported: Iterable[str]) -> str:
    """What an operator's name begins with; "" for the default domain, whose operators have a name alone."""
    spelled = next((domain for domain in imported if operator.startswith(f"{domain}.")), "")
    return spelled or operator.rpartition(".")[0]
