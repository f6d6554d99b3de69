"""Wording and sort orders shared by all report formats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from onnxgate.core.findings import Stage, name_runtimes, runtime_sort_key
from onnxgate.core.matrix import Matrix
from onnxgate.core.report import Against, Cell, CellState, Change, Finding, Measured, NotDone, Report, ReportedPlace
from onnxgate.core.text import LONG_LIMIT, join_phrases, pluralize, truncate

LEVELS = ("error", "warning", "note")
STATE_MEANINGS = {
    "pass": "pass",
    "warning": "warning or ignored finding",
    "fail": "fail",
    "predicted": "predicted, not run",
    "not predicted": "could not be predicted, not run",
    "undecided": "undecided",
    "skipped": "skipped",
    "not asked": "not checked",
}
STATE_WORDS = {
    "pass": "ok",
    "warning": "warn",
    "fail": "FAIL",
    "predicted": "ok*",
    "not predicted": "?",
    "undecided": "?",
    "skipped": "–",
    "not asked": "–",
}
"""State of a table cell -> word shown in the table."""
WORD_MEANINGS = {
    "ok*": "predicted, not run",
    "warn": "warning or ignored finding",
    "?": "could not be checked",
    "–": "not checked",
}
"""Word shown in a table -> its explanation in the legend; words without an explanation are omitted."""
WORST_WORDS_FIRST = ("FAIL", "?", "warn", "–", "ok*", "ok")
NOT_PREDICTED = "could not be predicted, and was not run"
DEFAULT_PATH = "onnxgate.lock"
"""File reported for findings without a place and a model, in formats that require a file."""
MAX_NAMED_MODELS = 4
"""Maximum number of models named in a sentence; further models are only counted."""


def format_place(where: ReportedPlace) -> str:
    """Return the path and line, such as `export/classifier.py:31`, which terminals and editors turn into a link."""
    return f"{where.path}:{where.line}" if where.line else where.path


def list_runtimes(report: Report) -> tuple[str, ...]:
    """Return the names of the runtimes, such as `onnxruntime 1.18.1`, sorted by engine and release."""
    names = dict.fromkeys(f"{runtime.engine} {runtime.version}" for runtime in report.runtimes)
    return tuple(sorted(names, key=runtime_sort_key))


def describe_runtimes(names: Iterable[str], report: Report) -> str:
    """Return the runtimes as text; three or more that are consecutive in the report form a range."""
    return name_runtimes(set(names), list_runtimes(report))


def finding_subject(finding: Finding) -> str:
    """Return the model that a finding is about, or the file if it is not about a model."""
    return finding.model or finding.place.path or "the project"


def render_message(finding: Finding, limit: int = LONG_LIMIT) -> str:
    """Return the message of a finding, with a note if a run confirmed the finding."""
    message = truncate(finding.message, limit)
    return f"{message} (confirmed by a run)" if finding.confirmed else message


def render_message_with_node(finding: Finding) -> str:
    """Return the message of a finding, followed by its node."""
    node = f" (node `{truncate(finding.node)}`)" if finding.node and finding.node not in finding.message else ""
    return f"{render_message(finding)}{node}"


def render_sentence(finding: Finding) -> str:
    """Return the subject, message and node of a finding, for formats that do not group findings."""
    return f"{truncate(finding_subject(finding))}: {render_message_with_node(finding)}"


def path_from_root(report: Report, path: str) -> str:
    """Return a path of the report relative to the root of the git repository."""
    return f"{report.folder}/{path}" if report.folder and path else path


def list_active_findings(answer: Report | Matrix) -> list[Finding]:
    """Return the findings that are not ignored, worst first."""
    return sorted((finding for finding in answer.findings if not finding.ignored), key=_severity_key)


def list_ignored_findings(report: Report) -> list[Finding]:
    """Return the ignored findings, worst first."""
    return sorted((finding for finding in report.findings if finding.ignored), key=_severity_key)


def _severity_key(finding: Finding) -> tuple[int, str, str, str, int]:
    return (LEVELS.index(finding.level), finding_subject(finding), finding.rule, finding.place.path, finding.place.line)


def group_by_subject(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Group findings by subject; subjects keep the order of their first finding."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding_subject(finding), []).append(finding)
    return list(groups.items())


class Gap(msgspec.Struct, frozen=True):
    """Undecided or skipped checks that have the same reason."""

    reason: str
    hint: str
    stages: tuple[str, ...]
    models: tuple[str, ...]
    runtimes: tuple[str, ...]

    def about(self, report: Report) -> str:
        """Return the stages, models and runtimes of these checks."""
        parts = (join_model_names(self.models), describe_runtimes(self.runtimes, report))
        subject = " on ".join(part for part in parts if part)
        stages = ", ".join(self.stages)
        return f"{stages}: {subject}" if subject else stages

    def explain(self, report: Report) -> tuple[str, str]:
        """Return the reason and the hint, or a reference to the finding above whose fix starts with the hint."""
        for finding in list_active_findings(report):
            if self.hint and self.models == (finding.model,) and finding.fix.startswith(self.hint):
                return f"see `{finding.rule}` above", ""
        return self.reason, self.hint


def merge_gaps(items: Iterable[NotDone]) -> list[Gap]:
    """Merge undecided or skipped checks that have the same reason, stages and runtimes."""
    reasons: dict[tuple[str, str, str], list[NotDone]] = {}
    for item in items:
        reasons.setdefault((item.reason, item.hint, item.model), []).append(item)
    by_runtimes: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (reason, hint, _), group in reasons.items():
        key = (reason, hint, _unique(item.stage for item in group), _unique(item.runtime for item in group))
        by_runtimes.setdefault(key, []).extend(item.model for item in group)
    return [
        Gap(reason, hint, stages, _unique(sorted(models)), runtimes)
        for (reason, hint, stages, runtimes), models in by_runtimes.items()
    ]


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))


def join_model_names(models: Sequence[str]) -> str:
    """Join the names as in `a, b and c`; a long list contains only the first names and the number of further models."""
    if len(models) > MAX_NAMED_MODELS:
        models = [*models[: MAX_NAMED_MODELS - 1], f"{len(models) - MAX_NAMED_MODELS + 1} more models"]
    return join_phrases(models)


def describe_comparisons(report: Report) -> list[str]:
    """Return sentences about comparisons with the source, cached results, and models without a source."""
    return [*describe_runs(report), *describe_missing_sources(report)]


def describe_runs(report: Report) -> list[str]:
    """Return sentences about runs that were compared with the source, and about cached results."""
    run = [cell for cell in report.cells if cell.state in ("pass", "warning", "fail")]
    models = {cell.model for cell in run if cell.compared}
    sentences = []
    if models:
        cells = sum(cell.compared for cell in run)
        sentences.append(
            f"outputs compared with the source: {len(models)} of {pluralize(len(report.models), 'model')}, "
            f"{cells} of {pluralize(len(run), 'run')}"
        )
    if reused := report.counts.get("reused", 0):
        sentences.append(f"{pluralize(reused, 'result')} reused from cache (disable with `--no-cache`)")
    return sentences


def describe_missing_sources(report: Report) -> list[str]:
    """Return a sentence about models without a source, if a stage that needs the source was selected."""
    count = report.counts.get("without_source", 0)
    skipped = [name for name in ("parity", "export") if name in report.stages]
    if not count or not skipped:
        return []
    subject = f"{pluralize(count, 'model')} {'has' if count == 1 else 'have'} no `source`"
    checks = {"parity": "parity with source", "export": "export"}
    verb = "was" if len(skipped) == 1 else "were"
    return [f"{subject}; {' and '.join(checks[name] for name in skipped)} {verb} skipped"]


RATIO_METRICS = {"sqnr_db": "SNR {:.3g} dB", "cosine": "cosine {:.4g}", "top1": "top-1 agreement {:.4g}"}
"""Metrics for which larger values are better, with a format template for their values."""

BUDGET_METRICS = {"time ratio": "time", "memory ratio": "peak memory"}
"""Names of the budget metrics in messages; their values are multiples of the baseline."""

BUDGET_INTERVAL_METRICS = tuple(f"{cost}, {end}" for cost in BUDGET_METRICS for end in ("low", "high"))
"""Metrics for the ends of the confidence intervals of budgets."""

BOUND_ORIGINS = {"config": " from the config", "lock": " from the lock", "type": ""}
"""Phrases that state where a limit comes from; default limits have none."""


def select_tightest(measured: Sequence[Measured]) -> list[Measured]:
    """Return the value nearest to its limit for each model, and for each budget of a model."""
    nearest: dict[tuple[str, str], Measured] = {}
    for figure in measured:
        if figure.bound is None or figure.metric in BUDGET_INTERVAL_METRICS:
            continue
        key = (figure.model, figure.metric if figure.metric in BUDGET_METRICS else "")
        if key not in nearest or bound_usage(figure) > bound_usage(nearest[key]):
            nearest[key] = figure
    return list(nearest.values())


def bound_usage(figure: Measured) -> float:
    """Return the used share of the tolerance (1: all of it); infinity if the value is not finite or has no limit."""
    if figure.value is None or figure.bound is None:
        return math.inf
    if figure.metric in RATIO_METRICS:
        return 10.0 ** ((figure.bound - figure.value) / 20.0) if figure.metric == "sqnr_db" else 0.0
    return figure.value / figure.bound if figure.bound else figure.value * math.inf if figure.value else 0.0


def describe_measurement(measured: Measured) -> str:
    """Describe a measured value and its limit."""
    model, origin = truncate(measured.model), BOUND_ORIGINS.get(measured.bound_from, "")
    if measured.metric in (*BUDGET_METRICS, *BUDGET_INTERVAL_METRICS):
        metric, _, end = measured.metric.partition(", ")
        spread = {"low": "at least ", "high": "at most "}.get(end, "")
        ratio = f"{spread}{measured.value:.2f} times the {BUDGET_METRICS[metric]}"
        return f"{model}: {ratio} of the baseline (limit {measured.bound:g}{origin}, {measured.pair})"
    output = f"{model}: `{truncate(measured.output)}`"
    if measured.value is None:
        return f"{output}: the difference is not finite ({measured.pair})"
    if measured.bound is None:
        return f"{output}: {measured.metric} {measured.value:.4g} ({measured.pair})"
    if measured.metric in RATIO_METRICS:
        actual, needed = (RATIO_METRICS[measured.metric].format(value) for value in (measured.value, measured.bound))
        return f"{output}: {actual} (minimum {needed}{origin}, {measured.pair})"
    difference = "no difference" if measured.value == 0 else f"max difference {measured.value:.2g}"
    return f"{output}: {difference} (tolerance {measured.bound:.2g}{origin}, {measured.pair})"


def render_verdict(report: Report) -> str:
    """Return the last line, such as `fail: 2 models on 8 runtimes: 1 error; skipped stages: export`."""
    runtimes, extent = list_runtimes(report), pluralize(len(report.models), "model") if report.models else ""
    if report.models and runtimes and not report.cells:  # without a config
        extent = describe_releases(len(report.models), runtimes)
    elif runtimes:
        extent += f" on {pluralize(len(runtimes), 'runtime')}"
    unpredicted = list_unpredicted_runtimes(report)
    missing = f"not predicted: {describe_runtimes(unpredicted, report)}" if unpredicted else ""
    scope = "; ".join(truncate(part) for part in (missing, report.scope) if part)
    return render_summary(report, extent, report.skipped, scope)


def describe_releases(models: int, runtimes: Sequence[str]) -> str:
    """Describe the extent of a check without a config, such as `1 model checked against 46 releases up to 1.31.1`."""
    newest = f" up to {runtimes[-1].rpartition(' ')[2]}" if len(runtimes) > 1 else ""
    releases = f" checked against {pluralize(len(runtimes), 'release')}{newest}" if runtimes else ""
    return f"{pluralize(models, 'model')}{releases}"


def render_summary(answer: Report | Matrix, extent: str, skipped: Sequence[NotDone] = (), scope: str = "") -> str:
    """Return the verdict, the extent, the number of findings and undecided checks, and the scope."""
    levels = [finding.level for finding in answer.findings if not finding.ignored]
    others = {
        "ignored": len(answer.findings) - len(levels),
        "undecided": len(merge_gaps(answer.undecided)),
        "skipped": len(merge_gaps(skipped)),
    }
    counts = [pluralize(levels.count(level), level) for level in LEVELS if level in levels]
    counts += [f"{number} {word}" for word, number in others.items() if number]
    line = ": ".join(part for part in (answer.verdict, extent, ", ".join(counts)) if part)
    return f"{line}; {scope}" if scope else line


def list_unpredicted_runtimes(report: Report) -> list[str]:
    """Return the runtimes on which no model was predicted, if the runtime stage was not selected either."""
    if "runtime" in report.stages:
        return []
    states: dict[str, set[CellState]] = {}
    for cell in report.cells:
        states.setdefault(cell.runtime, set()).add(cell.state)
    return [name for name, found in states.items() if "not predicted" in found <= {"not predicted", "warning"}]


def cells_by_model(report: Report) -> dict[str, dict[str, Cell]]:
    """Return the cells by model and runtime."""
    table: dict[str, dict[str, Cell]] = {model.path: {} for model in report.models}
    for cell in report.cells:
        table.setdefault(cell.model, {})[cell.runtime] = cell
    return table


QUIET_STATES: tuple[CellState, ...] = ("pass", "predicted", "not predicted", "not asked")
"""States of cells that tables replace with `warning` if a finding for the cell is ignored."""


def table_cells(report: Report) -> dict[str, dict[str, Cell]]:
    """Return the cells for tables, by model and runtime. A cell with an ignored finding is a warning."""
    ignored: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.ignored and finding.level != "note" and finding.model:
            ignored.setdefault(finding.model, []).append(finding)
    return {
        model: {
            runtime: replace(cell, state="warning")
            if cell.state in QUIET_STATES and any(_concerns(it, runtime) for it in ignored.get(model, ()))
            else cell
            for runtime, cell in row.items()
        }
        for model, row in cells_by_model(report).items()
    }


def _concerns(finding: Finding, runtime: str) -> bool:
    """Return whether a finding is about the runtime, or about the model file and so about all runtimes."""
    return runtime in finding.runtimes or (not finding.runtimes and finding.stage == Stage.FILE.value)


CHANGE_KINDS = {"added": "is new", "removed": "was removed", "renamed": "was renamed", "changed": "changed"}


def baseline_name(against: Against) -> str:
    """Return the name and commit of the baseline, such as `origin/main (1a2b3c4)`."""
    name = truncate(against.name)
    return name if against.commit.startswith(name) else f"{name} ({against.commit[:7]})"


def changes_title(report: Report) -> str:
    """Return a title such as `changed since origin/main (1a2b3c4)`; "" without a baseline or a complete comparison."""
    all_compared = "lock" in report.stages and all(gap.stage != "lock" for gap in report.undecided)
    if report.against is None or not (report.changes or all_compared):
        return ""
    return f"{'changed' if report.changes else 'no model changed'} since {baseline_name(report.against)}"


def rank_models(report: Report) -> dict[str, int]:
    """Return the level of the worst finding of each model, as an index into LEVELS."""
    return {finding.model: LEVELS.index(finding.level) for finding in reversed(list_active_findings(report))}


def sort_changes(report: Report) -> list[Change]:
    """Return the changes; models with the worst findings come first."""
    ranks = rank_models(report)
    return sorted(report.changes, key=lambda change: ranks.get(change.model, len(LEVELS)))


def describe_change(change: Change) -> str:
    """Return what happened to the model, such as `is new` or `was renamed from models/old.onnx`."""
    before = f" from {truncate(change.before)}" if change.before else ""
    return f"{CHANGE_KINDS[change.kind]}{before}"


def list_differences(change: Change, most: int) -> Sequence[str]:
    """Return the first differences of a change, and the number of the others."""
    shown = [truncate(difference) for difference in change.said[:most]]
    more = len(change.said) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown
