"""What differs in one comparison, in words that are the same for every runtime, and in this runtime's figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from onnxgate.evidence.parity import RATIOS, Comparison, Difference

BOUND_FROM = {
    "config": "by `tolerance`",
    "lock": "as measured from its source",
    "type": "by default for its type",
}


NEEDED_BY = {
    "config": "by `tolerance`",
    "lock": "by what the lock recorded",
    "type": "by default for quantized models",
}


def mismatches(comparison: Comparison) -> tuple[Difference, ...]:
    """The differences beyond their bound."""
    return tuple(each for each in comparison.differences if not each.agrees)


def said_outputs(differences: Sequence[Difference]) -> str:
    """ "output `y` differs", "outputs `a`, `b` differ", "the number of outputs differs"."""
    names = list(dict.fromkeys(each.output for each in differences))
    if "" in names:
        return "the number of outputs differs"
    listed = ", ".join(f"`{name}`" for name in names)
    return f"output {listed} differs" if len(names) == 1 else f"outputs {listed} differ"


def identity_of(comparison: Comparison) -> str:
    """What a mismatch is, whatever its figures: the outputs, and what they are held against, in any release."""
    reference = comparison.reference if comparison.pair in ("source", "quantized") else ""
    return f"{comparison.pair} {reference} {said_outputs(mismatches(comparison))}"


def accepting(differences: Sequence[Difference]) -> str:
    """How to say in the config that this much is accepted.

    Integers and booleans are held to a tolerance that names the output alone, words to none.
    """
    exact = [each for each in differences if each.metric == "mismatched elements"]
    named = dict.fromkeys(each.output for each in exact if not _is_of_words(each))
    if exact and not named:
        return "ignore the finding if this much is accepted: words have no tolerance"
    if not named:
        return "set `tolerance` for the model if this much is accepted"
    form = ", ".join(f"{_key(name)} = {{ rtol = 0, atol = 20 }}" for name in named)
    return f"set `tolerance = {{ {form} }}`, or how far it may be, for the model if this much is accepted"


def _is_of_words(difference: Difference) -> bool:
    """A detail quotes words as Python does: "at [0]: 'cat' against 'cut'"."""
    return difference.detail.partition("]: ")[2].startswith(("'", '"'))


def _key(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def worst(differences: Sequence[Difference]) -> Difference:
    """The one that is farthest beyond its bound; what is no figure at all is worse than any figure."""
    return max(differences, key=_excess)


def _excess(difference: Difference) -> tuple[bool, float]:
    if difference.metric in RATIOS:
        return False, difference.bound - difference.value
    share = difference.value / difference.bound if difference.bound else math.inf
    return difference.metric in {"outputs", "type", "shape"}, share


def figure(comparison: Comparison) -> str:
    """The detail of a mismatch: the worst figure, its bound and where that comes from, the case, and the level."""
    found = mismatches(comparison)
    each = worst(found)
    return f"{_said(each)} in `{each.case}`{_only_at(found, comparison)}"


def _telling(difference: Difference) -> str:
    """The figures that tell whether a difference matters: " (cosine 0.999, 12 dB, argmax agrees in 3 of 8 rows)"."""
    found = {each.metric: each.value for each in difference.figures}
    said = [f"cosine {_ratio(found['cosine'])}"] if "cosine" in found and difference.metric != "cosine" else []
    if "sqnr_db" in found and difference.metric != "sqnr_db":
        said.append(f"{found['sqnr_db']:.3g} dB")
    rows = int(found.get("rows", 0))
    if rows and "top1" in found:
        said.append(f"argmax agrees in {round(found['top1'] * rows)} of {rows} {'row' if rows == 1 else 'rows'}")
    masked = int(found.get("masked elements", 0))
    said += [f"{masked} masked elements left out"] if masked else []
    return f" ({', '.join(said)})" if said else ""


def _ratio(value: float) -> str:
    """Four digits, and as many more as it takes not to say 1 of what is less."""
    return next(text for digits in (4, 6, 9, 17) if (text := f"{value:.{digits}g}") != "1" or value == 1)


def _said(difference: Difference) -> str:
    where, _, counted = difference.detail.partition("; ")
    match difference.metric:
        case "worst_abs":
            allowed = f"{difference.bound:.2g} is allowed {BOUND_FROM[difference.bound_from]}"
            return f"is off by {difference.value:.2g}{_telling(difference)}, where {allowed},"
        case "mismatched elements":
            allowed = (
                f", where {difference.bound:g} may {BOUND_FROM[difference.bound_from]}" if difference.bound else ""
            )
            return f"is off: {counted or where}{allowed},"
        case "not finite":
            return f"gives {where.partition(': ')[2]}"
        case "sqnr_db":
            needed = f"{difference.bound:.3g} dB are needed {_needed(difference)}"
            return f"keeps {difference.value:.3g} dB{_telling(difference)}, where {needed},"
        case "cosine":
            needed = f"{_ratio(difference.bound)} is needed {_needed(difference)}"
            return f"keeps a cosine of {_ratio(difference.value)}{_telling(difference)}, where {needed},"
        case "top1":
            needed = f"{difference.bound:.3g} is needed {_needed(difference)}"
            return (
                f"keeps the largest element in a share of {difference.value:.3g}{_telling(difference)}, where {needed},"
            )
        case _:
            return f"gives {difference.detail}"


def _needed(difference: Difference) -> str:
    return NEEDED_BY[difference.bound_from]


def _only_at(found: Sequence[Difference], comparison: Comparison) -> str:
    here = {each.optimization for each in found}
    elsewhere = {each.optimization for each in comparison.differences} - here
    return f" with optimisation `{min(here)}`, not with `{min(elsewhere)}`" if elsewhere else ""
