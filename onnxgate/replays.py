"""What shows a finding again: the fewest input cases on which the rules say the same, and the command for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from onnxgate.evidence.parity import Comparison
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.findings import Judged, Stage
from onnxgate.report import Finding, Replay
from onnxgate.runtimes.jobs import Case

Say = Callable[[Iterable[object]], Iterable[Judged]]

CONFIGS = ("onnxgate.toml", "pyproject.toml")
"""Names of configs that are found by themselves."""

STAGES = (Stage.RUNTIME, Stage.PARITY)
_SAFE = re.compile(r"[A-Za-z0-9 =_.,:/'+\[\]-]+")


def replays(
    subjects: Sequence[object],
    cases: Mapping[str, Sequence[Case]],
    say: Say,
    seed: int,
    config: str,
    folder: Path | None,
) -> tuple[Replay, ...]:
    """One replay per model of which the rules say something that comes from its input cases.

    `say` judges subjects; `cases` are those that each model was run on. `config` is the config's file. Inputs are
    stored in `folder`, the user's own files excepted.
    """
    found = []
    for model in sorted(cases):
        about = [each for each in subjects if isinstance(each, ModelRuns | Comparison) and each.model == model]
        chosen = _fewest(about, [case.name for case in cases[model]], say)
        if not chosen:
            continue
        replay = Replay(
            model=model,
            rules=tuple(sorted({each.rule for each in say(about)})),
            cases=chosen,
            seed=seed,
            command=command(model, chosen, seed, config),
            inputs=_stored([case for case in cases[model] if case.name in chosen], model, folder),
        )
        found.append(replay)
    return tuple(found)


def shown(every: Iterable[Replay], findings: Iterable[Finding]) -> tuple[Replay, ...]:
    """The replays of findings that are shown: neither ignored, nor explained by another."""
    said = {(each.model, each.rule) for each in findings if not each.ignored}
    return tuple(each for each in every if any((each.model, rule) in said for rule in each.rules))


def _fewest(subjects: Sequence[ModelRuns | Comparison], names: Sequence[str], say: Say) -> tuple[str, ...]:
    """Of the cases as few as will do: none can be left out without the rules saying something else."""
    wanted = _said(subjects, names, say)
    kept = list(names) if wanted else []
    for name in reversed(names if wanted else ()):
        fewer = [each for each in kept if each != name]
        if _said(subjects, fewer, say) == wanted:
            kept = fewer
    return tuple(kept)


def _said(subjects: Sequence[ModelRuns | Comparison], names: Sequence[str], say: Say) -> frozenset[Judged]:
    return frozenset(say([_only(each, names) for each in subjects]))


def _only(subject: ModelRuns | Comparison, names: Sequence[str]) -> ModelRuns | Comparison:
    """The evidence as if only these cases had been run."""
    if isinstance(subject, ModelRuns):
        return msgspec.structs.replace(
            subject,
            attempts=tuple(each for each in subject.attempts if each.case in ("", *names)),
            usable_cases=tuple(name for name in subject.usable_cases if name in names),
        )
    first = subject.first if subject.first is not None and subject.first.case in names else None
    differences = tuple(each for each in subject.differences if each.case in names)
    return msgspec.structs.replace(subject, differences=differences, first=first)


def _stored(cases: Iterable[Case], model: str, folder: Path | None) -> tuple[str, ...]:
    """Names of the files that hold inputs that no file of the user's holds."""
    if folder is None:
        return ()
    from onnxgate.inputs.stored import store

    names = [store(case, model, folder) for case in cases if case.origin != "user"]
    return tuple(dict.fromkeys(name for name in names if name))


def command(model: str, cases: Iterable[str], seed: int, config: str, directory: str = "") -> str:
    """What to type; `directory` is the config's folder as seen from where it is typed, "" in that folder itself."""
    path = f"./{model}" if model.startswith("-") else model
    words = ["onnxgate", "check", path, "--stage", ",".join(stage.value for stage in STAGES)]
    words += [word for case in cases for word in ("--case", case)]
    words += ["--seed", str(seed)] if seed else []
    words += ["--directory", directory] if directory else []
    words += [] if config in CONFIGS else ["--config", f"{directory}/{config}" if directory else config]
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word as every usual shell reads it; as those of POSIX do where it holds what others would take apart."""
    if " " not in word or not _SAFE.fullmatch(word):
        return shlex.quote(word)
    return f'"{word}"'
