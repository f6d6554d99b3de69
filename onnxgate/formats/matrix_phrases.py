"""What every format says alike of a matrix: why a model does not load elsewhere, what was wrong, the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from onnxgate.findings import name_runtimes
from onnxgate.formats.phrases import LONG, SHORT, count, short
from onnxgate.matrix import Entry, Group, Matrix, MatrixModel, Range, in_words

REPORT_IT = "report it with the model, or with the nodes that it names: a prediction must never be wrong"
STATES = {"refused": "refused by", "unknown": "not known on"}


def sentence(found: Range) -> str:
    """Where the model loads."""
    return short(found.sentence, LONG)


def where(group: Group, model: MatrixModel) -> str:
    """`refused by onnxruntime 1.16.0 to 1.17.3`."""
    every = [entry.runtime for entry in model.runtimes]
    return f"{STATES[group.state]} {name_runtimes(group.runtimes, every)}"


def because(group: Group) -> str:
    """Its reason."""
    return short(group.because, LONG) or "no reason is known"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A prediction that was seen to be wrong."""

    path: str
    runtime: str
    said: str


def wrong(matrix: Matrix) -> list[Wrong]:
    """All of them."""
    return [
        Wrong(model.path, entry.runtime, _contradiction(entry))
        for model in matrix.models
        for entry in model.runtimes
        if entry.contradicted
    ]


def _contradiction(entry: Entry) -> str:
    if entry.observed == "loads":
        because = f" ({short(in_words(entry.reasons[0]))})" if entry.reasons else ""
        return f"predicted to be refused{because}, and it loads"
    was = "it was refused" if entry.observed == "refused" else "the runtime crashed"
    return f"predicted to load, and {was}: {short(entry.error)}"


def unseen(matrix: Matrix) -> dict[str, list[str]]:
    """What could not be verified: reason -> runtimes, each once."""
    found: dict[str, list[str]] = {}
    for entry in matrix.entries:
        if entry.observed in ("unavailable", "timed-out"):
            runtimes = found.setdefault(short(entry.error, SHORT), [])
            if entry.runtime not in runtimes:
                runtimes.append(entry.runtime)
    return found


def verdict(matrix: Matrix) -> str:
    """The last line: `pass: 2 models on 46 releases; predicted, nothing was run`."""
    releases = count(len(matrix.models[0].runtimes) if matrix.models else 0, "release")
    parts = (f"{matrix.verdict}: {count(len(matrix.models), 'model')} on {releases}", _none(matrix), _verified(matrix))
    return "; ".join(part for part in parts if part)


def _none(matrix: Matrix) -> str:
    """The models that decide the verdict, by what the newest release makes of them."""
    refused = [model for model in matrix.models if model.outcome == "refused"]
    unknown = sum(model.outcome == "unknown" for model in matrix.models)
    known = " that is known" if any(model.on("unknown") for model in refused) else ""
    said = [f"{len(refused)} {_verb(len(refused))} on none{known}"] if refused else []
    if unknown:
        said.append(f"{unknown} {'is' if unknown == 1 else 'are'} not known to load on any")
    return ", ".join(said)


def _verb(number: int) -> str:
    return "loads" if number == 1 else "load"


def _verified(matrix: Matrix) -> str:
    asked = [entry for entry in matrix.entries if entry.observed]
    if not asked:
        return "predicted, nothing was run"
    looked = [entry for entry in asked if entry.observed not in ("unavailable", "timed-out")]
    false = sum(entry.contradicted for entry in asked)
    said = f"{count(len(looked), 'load')} tried, {count(false, 'prediction') if false else 'no prediction'} wrong"
    missing = len(asked) - len(looked)
    return f"{said}, {missing} could not be verified" if missing else said
