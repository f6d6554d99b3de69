"""What every format says alike: which runtimes, what was not done, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxgate.findings import name_runtimes, runtime_order
from onnxgate.report import Cell, Finding, Measured, NotDone, Report, ReportedPlace

LEVELS = ("error", "warning", "note")
SHORT = 300
"""Foreign strings are cut at this many characters where a person reads them; `json` has them whole."""
LONG = 4000
"""Messages are cut here."""
NAMED = 4
"""So many models are named where a sentence lists them; the rest is counted."""


def count(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short(text: str, limit: int = SHORT) -> str:
    """The text, cut where nobody would read on."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def place(where: ReportedPlace) -> str:
    """`export/classifier.py:31`, as terminals and editors follow it."""
    return f"{where.path}:{where.line}" if where.line else where.path


def runtime_names(report: Report) -> tuple[str, ...]:
    """Each runtime once, by engine and release: `onnxruntime 1.18.1`."""
    names = dict.fromkeys(f"{runtime.engine} {runtime.version}" for runtime in report.runtimes)
    return tuple(sorted(names, key=runtime_order))


def runtimes(names: Iterable[str], report: Report) -> str:
    """`onnxruntime 1.18.1 to 1.23.2 and 1.31.1`: neighbours among the report's are said as a range."""
    return name_runtimes(set(names), runtime_names(report))


def subject(finding: Finding) -> str:
    """What a finding is about: its model, or the file where it stands."""
    return finding.model or finding.place.path or "the project"


def said(finding: Finding, limit: int = LONG) -> str:
    """Its message, which names the runtimes, and whether what was predicted was seen to happen."""
    message = short(finding.message, limit)
    return f"{message}; a real run confirms it" if finding.confirmed else message


def told(finding: Finding) -> str:
    """Its message with its node."""
    node = f" (node `{short(finding.node)}`)" if finding.node and finding.node not in finding.message else ""
    return f"{said(finding)}{node}"


def sentence(finding: Finding) -> str:
    """All of it but the fix, for where it stands alone: what it is about, its message, its node."""
    return f"{short(subject(finding))}: {told(finding)}"


def from_root(report: Report, path: str) -> str:
    """The path as seen from git's root."""
    return f"{report.folder}/{path}" if report.folder and path else path


def spoken(report: Report) -> list[Finding]:
    """The findings that count, worst first."""
    return sorted((one for one in report.findings if not one.ignored), key=_weight)


def ignored(report: Report) -> list[Finding]:
    """The findings that the config accepts, worst first."""
    return sorted((one for one in report.findings if one.ignored), key=_weight)


def _weight(finding: Finding) -> tuple[int, str, str, str, int]:
    return (LEVELS.index(finding.level), subject(finding), finding.rule, finding.place.path, finding.place.line)


def by_subject(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Findings by what they are about; what has the worst finding comes first."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(subject(finding), []).append(finding)
    return list(groups.items())


@dataclass(frozen=True, slots=True)
class Gap:
    """What could not be done, or need not be, for one reason."""

    reason: str
    hint: str
    stages: tuple[str, ...]
    models: tuple[str, ...]
    runtimes: tuple[str, ...]

    def about(self, report: Report) -> str:
        """`runtime, parity: models/a.onnx and models/b.onnx on onnxruntime 1.18.1 to 1.31.1`."""
        parts = (names(self.models), runtimes(self.runtimes, report))
        subject = " on ".join(part for part in parts if part)
        stages = ", ".join(self.stages)
        return f"{stages}: {subject}" if subject else stages


def gaps(items: Iterable[NotDone]) -> list[Gap]:
    """Entries of one reason as one; those of one model and those of one runtime are not mixed up."""
    reasons: dict[tuple[str, str, str], list[NotDone]] = {}
    for item in items:
        reasons.setdefault((item.reason, item.hint, item.model), []).append(item)
    by_runtimes: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (reason, hint, _), group in reasons.items():
        key = (reason, hint, _once(item.stage for item in group), _once(item.runtime for item in group))
        by_runtimes.setdefault(key, []).extend(item.model for item in group)
    return [
        Gap(reason, hint, stages, _once(sorted(models)), runtimes)
        for (reason, hint, stages, runtimes), models in by_runtimes.items()
    ]


def _once(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def names(models: Sequence[str]) -> str:
    """`a, b and c`; many are counted."""
    if len(models) > NAMED:
        return f"{', '.join(models[: NAMED - 1])} and {len(models) - NAMED + 1} more models"
    return " and ".join(part for part in (", ".join(models[:-1]), *models[-1:]) if part)


def compared(report: Report) -> list[str]:
    """How many models had their outputs compared with their source's, and how many have no source."""
    run = [cell for cell in report.cells if cell.state in ("pass", "warning", "fail")]
    models = {cell.model for cell in run if cell.compared}
    said = []
    if models:
        cells = sum(cell.compared for cell in run)
        of = f"{len(models)} of {count(len(report.models), 'model')}, in {cells} of {count(len(run), 'run')}"
        said.append(f"outputs were compared with the source for {of}")
    if reused := report.counts.get("reused", 0):
        said.append(f"{count(reused, 'run')} taken over from an earlier check of the same bytes (`--no-cache`: none)")
    without = report.counts.get("without_source", 0)
    if without and {"parity", "export"} & set(report.stages):
        said.append(f"{count(without, 'model')} without a source: neither compared with it nor exported again")
    return said


RATIOS = {"sqnr_db": "{:.3g} dB", "cosine": "a cosine of {:.4g}", "top1": "{:.4g} of the argmax"}
"""Metrics of which more is better, as they are said."""

COSTS = {"time ratio": "time", "memory ratio": "memory at its peak"}
"""Metrics of budgets: how many times as much as its baseline a model takes."""

SPREAD = tuple(f"{cost}, {end}" for cost in COSTS for end in ("low", "high"))
"""Metrics that say how far those are certain."""

ALLOWED = {"config": " by the config", "lock": " by what the lock recorded", "type": " by default"}
"""Where a bound comes from, as it is said."""


def tightest(measured: Sequence[Measured]) -> list[Measured]:
    """For each model the figure that came nearest to its bound; of its outputs, and of each budget."""
    nearest: dict[tuple[str, str], Measured] = {}
    for figure in measured:
        if figure.bound is None or figure.metric in SPREAD:
            continue
        key = (figure.model, figure.metric if figure.metric in COSTS else "")
        if key not in nearest or used(figure) > used(nearest[key]):
            nearest[key] = figure
    return list(nearest.values())


def used(figure: Measured) -> float:
    """How much of what is allowed was used up."""
    if figure.value is None or figure.bound is None:
        return math.inf
    if figure.metric in RATIOS:
        return 10.0 ** ((figure.bound - figure.value) / 20.0) if figure.metric == "sqnr_db" else 0.0
    return figure.value / figure.bound if figure.bound else figure.value * math.inf if figure.value else 0.0


def figure(measured: Measured) -> str:
    """One figure against its bound."""
    if measured.metric in (*COSTS, *SPREAD):
        return _cost(measured)
    output = f"{short(measured.model)}: `{short(measured.output)}`"
    if measured.value is None:
        return f"{output} has no finite difference ({measured.pair})"
    if measured.bound is None:
        return f"{output}: {measured.metric} {measured.value:.4g} ({measured.pair})"
    if measured.metric in RATIOS:
        held, needed = (RATIOS[measured.metric].format(value) for value in (measured.value, measured.bound))
        return f"{output} keeps {held} where {needed} is needed{_by(measured)} ({measured.pair})"
    if measured.value == 0:
        return f"{output} does not differ ({measured.pair})"
    allowed = f"{measured.bound:.2g} is allowed{_by(measured)}"
    return f"{output} differs by at most {measured.value:.2g} where {allowed} ({measured.pair})"


def _cost(measured: Measured) -> str:
    """How many times as much as its baseline a model takes."""
    metric, _, end = measured.metric.partition(", ")
    spread = {"low": " at least", "high": " at most"}.get(end, "")
    taken = f"takes{spread} {measured.value:.2f} times the {COSTS[metric]}"
    return f"{short(measured.model)}: {taken} where {measured.bound:g} is allowed{_by(measured)} ({measured.pair})"


def _by(measured: Measured) -> str:
    return ALLOWED.get(measured.bound_from, "")


def verdict(report: Report) -> str:
    """The last line: `pass: 2 models on 8 runtimes; export not asked for`."""
    parts = (f"{report.verdict}: {_extent(report)}", _tally(report), short(report.scope))
    return "; ".join(part for part in parts if part)


def _extent(report: Report) -> str:
    number = len(runtime_names(report))
    models = count(len(report.models), "model")
    return f"{models} on {count(number, 'runtime')}" if number else models


def _tally(report: Report) -> str:
    levels = [one.level for one in report.findings if not one.ignored]
    said = [count(levels.count(level), level) for level in LEVELS if level in levels]
    others = (
        (len(report.findings) - len(levels), "ignored"),
        (len(report.undecided), "undecided"),
        (len(report.skipped), "skipped"),
    )
    return ", ".join((*said, *(f"{number} {word}" for number, word in others if number)))


def matrix(report: Report) -> dict[str, dict[str, Cell]]:
    """Cells by model and runtime."""
    table: dict[str, dict[str, Cell]] = {model.path: {} for model in report.models}
    for cell in report.cells:
        table.setdefault(cell.model, {})[cell.runtime] = cell
    return table
