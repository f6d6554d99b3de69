"""Domains of which a model uses operators that its file does not define itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import PurePosixPath

from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import ModelFacts

EXTERNAL_DOMAIN_PREFIXES = ("ai.onnx.", "com.microsoft.", "com.ms.internal.")
"""What domains begin with that no file defines functions of."""


def find_used_domains(facts: ModelFacts) -> dict[str, list[str]]:
    """Domain -> the operators that are used of it, both sorted; without the default domain.

    A lock counts the calls of local functions and does not say which they are: where a model has any, only what
    nobody defines in a file is told.
    """
    unsaid = has_unnamed_functions(facts)
    imported = sorted({*facts.opsets, *facts.function_opsets} - {"ai.onnx"}, key=len, reverse=True)
    undefined = sorted(facts.operators.keys() - set(facts.functions))
    found: dict[str, list[str]] = {}
    for operator in undefined:
        domain = _operator_domain(operator, imported)
        if domain and not (unsaid and not f"{domain}.".startswith(EXTERNAL_DOMAIN_PREFIXES)):
            found.setdefault(domain, []).append(operator.removeprefix(f"{domain}."))
    return dict(sorted(found.items()))


def find_added_domains(before: ModelFacts, after: ModelFacts) -> dict[str, list[str]]:
    """The domains that only `after` uses. One that a lock counted an operator of may have been used before."""
    used = find_used_domains(before)
    counted = before.operators.keys() if has_unnamed_functions(before) else set[str]()
    return {
        domain: operators
        for domain, operators in find_used_domains(after).items()
        if domain not in used and not any(f"{domain}.{operator}" in counted for operator in operators)
    }


def has_unnamed_functions(facts: ModelFacts) -> bool:
    """Return whether local functions exist that are not known, because the facts are a lock's."""
    return bool(facts.function_opsets) and not facts.functions


def _operator_domain(operator: str, imported: Iterable[str]) -> str:
    """What an operator's name begins with; "" for the default domain, whose operators have a name alone."""
    spelled = next((domain for domain in imported if operator.startswith(f"{domain}.")), "")
    return spelled or operator.rpartition(".")[0]


def find_new_data_files(change: ModelChange) -> list[str]:
    """The locations that the model did not name before, as it writes them; none that was renamed with the model."""
    before, after = list_data_locations(change.before), list_data_locations(change.after)
    renamed = {_rename_location(name, change.before.path, change.after.path) for name in before}
    return sorted(written for name, written in after.items() if name not in before and name not in renamed)


def list_data_locations(facts: ModelFacts) -> dict[str, str]:
    """Every location that the model names: normalised, and as it is written."""
    written = [*(file.location for file in facts.external), *facts.unread]
    return {posixpath.normpath(location): location for location in written}


def _rename_location(location: str, before: str, after: str) -> str:
    """Return the name that a data file named after its model would have with the model's new name."""
    old, new = PurePosixPath(before), PurePosixPath(after)
    folder, name = posixpath.split(location)
    if name.startswith(old.name):
        name = new.name + name[len(old.name) :]
    elif name.startswith(f"{old.stem}."):
        name = new.stem + name[len(old.stem) :]
    return posixpath.join(folder, name)


def total_size_bytes(facts: ModelFacts) -> int | None:
    """The model's size with its external data; None where some of that is not there."""
    return None if facts.unread else facts.size_bytes + sum(file.size_bytes for file in facts.external)
