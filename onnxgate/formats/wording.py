"""Phrases and sort orders that all report formats share."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from onnxgate.core.findings import UNDECIDED_RULE, name_runtimes, runtime_sort_key
from onnxgate.core.matrix import Matrix
from onnxgate.core.report import Against, Cell, CellState, Change, Finding, Measured, NotDone, Report, ReportedPlace
from onnxgate.core.text import LONG_LIMIT, join_phrases, pluralize, truncate

HOME_URL = "https://github.com/onnxgate/onnxgate"
_RULE_NAME = re.compile(r"[a-z]+(-[a-z]+){0,5}")

LEVELS = ("error", "warning", "note")
STATE_MEANINGS = {
    "pass": "pass",
    "warning": "warning or ignored finding",
    "fail": "fail",
    "predicted": "predicted to load, not run",
    "not predicted": "not run; the result could not be predicted",
    "undecided": "undecided",
    "skipped": "skipped",
    "not selected": "not checked",
}
STATE_WORDS = {
    "pass": "ok",
    "warning": "warn",
    "fail": "FAIL",
    "predicted": "likely",
    "not predicted": "–",
    "undecided": "?",
    "skipped": "–",
    "not selected": "–",
}
"""State of a model on a runtime -> word shown in tables."""
WORD_MEANINGS = {
    "likely": "predicted to load, not run",
    "warn": "warning or ignored finding",
    "?": "could not be checked",
    "–": "not checked",
}
"""Word shown in a table -> its explanation in the legend. Words that need no explanation are missing."""
WORST_WORDS_FIRST = ("FAIL", "?", "warn", "–", "likely", "ok")
NOT_PREDICTED = "not run; the result could not be predicted"
MAX_COUNTED_RULES = 12
"""Maximum number of rules of one level whose findings are counted at the top of a page."""
DEFAULT_PATH = "onnxgate.lock"
"""Path reported for a finding that has neither a place nor a model, in report formats that require a path."""
MAX_NAMED_MODELS = 4
"""Maximum number of models that a sentence names; if there are more, the others are only counted."""


def format_place(where: ReportedPlace) -> str:
    """Return a path and line number, such as `export/classifier.py:31`. Terminals and editors show it as a link."""
    return f"{where.path}:{where.line}" if where.line else where.path


def list_runtimes(report: Report) -> tuple[str, ...]:
    """Return the names of the report's runtimes, such as `onnxruntime 1.18.1`, sorted by engine and release."""
    names = dict.fromkeys(f"{runtime.engine} {runtime.version}" for runtime in report.runtimes)
    return tuple(sorted(names, key=runtime_sort_key))


def describe_runtimes(names: Iterable[str], report: Report) -> str:
    """Return a text that names the runtimes. Three or more that are consecutive in the report are given as a range."""
    return name_runtimes(set(names), list_runtimes(report))


def finding_subject(finding: Finding) -> str:
    """Return the path of the model that a finding is about or, if it is not about a model, of the file."""
    return finding.model or finding.place.path or "the project"


def render_message(finding: Finding, limit: int = LONG_LIMIT) -> str:
    """Return the message of a finding, with a note if a run confirmed the finding."""
    message = truncate(finding.message, limit)
    return f"{message}; confirmed by a run" if finding.confirmed else message


def render_message_with_node(finding: Finding) -> str:
    """Return the message of a finding, followed by the name of the node that it is about."""
    node = f" (node `{truncate(finding.node)}`)" if finding.node and finding.node not in finding.message else ""
    return f"{render_message(finding)}{node}"


def render_sentence(finding: Finding) -> str:
    """Return a sentence with the model or file, message and node of a finding."""
    return f"{truncate(finding_subject(finding))}: {render_message_with_node(finding)}"


def rule_url(rule: str) -> str:
    """Return the address of the page about a rule; "" if the text cannot be the name of a rule."""
    if rule == UNDECIDED_RULE:
        return f"{HOME_URL}/blob/main/docs/concepts/findings.md#accept-an-undecided-check"
    return f"{HOME_URL}/blob/main/docs/rules/{rule}.md" if _RULE_NAME.fullmatch(rule) else ""


def path_from_root(report: Report, path: str) -> str:
    """Convert a path of the report, relative to the config's folder, to a path relative to git's root folder."""
    return f"{report.folder}/{path}" if report.folder and path else path


def list_active_findings(answer: Report | Matrix) -> list[Finding]:
    """Return the findings that are not ignored, worst first."""
    return sorted((finding for finding in answer.findings if not finding.ignored), key=_severity_key)


def list_ignored_findings(report: Report) -> list[Finding]:
    """Return the ignored findings. Those that the baseline's config does not ignore come first, then the worst ones."""
    ignored = sorted((finding for finding in report.findings if finding.ignored), key=_severity_key)
    return sorted(ignored, key=lambda finding: not finding.newly_ignored)


class RuleCount(msgspec.Struct, frozen=True):
    """The number of findings of one rule with one level."""

    rule: str
    level: str
    count: int


def count_rules(report: Report) -> list[RuleCount]:
    """Count the findings that are not ignored by rule. The worst rules come first, then the most frequent ones."""
    counts = Counter((finding.level, finding.rule) for finding in list_active_findings(report))
    counted = [RuleCount(rule, level, count) for (level, rule), count in counts.items()]
    return sorted(counted, key=lambda it: (LEVELS.index(it.level), -it.count, it.rule))


def describe_ignored(report: Report) -> str:
    """Return the number of ignored findings and checks, such as `3 ignored findings (1 new)`; "" if there are none."""
    ignored = list_ignored_findings(report)
    undecided = sum(finding.rule == UNDECIDED_RULE for finding in ignored)
    new = sum(finding.newly_ignored for finding in ignored)
    parts = [
        pluralize(count, what)
        for count, what in (
            (len(ignored) - undecided, "ignored finding"),
            (undecided, "ignored undecided check"),
        )
        if count
    ]
    return f"{', '.join(parts)}{f' ({new} new)' if new else ''}" if ignored else ""


def _severity_key(finding: Finding) -> tuple[int, str, str, str, int]:
    return (LEVELS.index(finding.level), finding_subject(finding), finding.rule, finding.place.path, finding.place.line)


def group_by_subject(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """Group findings by the model or file that they are about. The groups are in the order of their first findings."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding_subject(finding), []).append(finding)
    return list(groups.items())


class Gap(msgspec.Struct, frozen=True):
    """A group of undecided or skipped checks that have the same reason."""

    reason: str
    hint: str
    stages: tuple[str, ...]
    models: tuple[str, ...]
    runtimes: tuple[str, ...]

    def about(self, report: Report) -> str:
        """Return stages, models and runtimes of the checks, for example `runtime: m.onnx on onnxruntime 1.18.1`."""
        parts = (join_model_names(self.models), describe_runtimes(self.runtimes, report))
        subject = " on ".join(part for part in parts if part)
        stages = ", ".join(self.stages)
        return f"{stages}: {subject}" if subject else stages

    def explain(self, report: Report) -> tuple[str, str]:
        """Return the reason and the hint of the checks.

        If the fix of a finding about the same model contains the hint, refer to that finding instead.
        """
        for finding in list_active_findings(report):
            if self.hint and self.models == (finding.model,) and self.hint in finding.fix:
                return f"see `{finding.rule}` above", ""
        return self.reason, self.hint


def merge_gaps(items: Iterable[NotDone]) -> list[Gap]:
    """Group undecided or skipped checks that have the same reason, stages and runtimes."""
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
    """Join names of models, such as `a, b and c`. If there are many, name only the first ones and count the others."""
    if len(models) > MAX_NAMED_MODELS:
        models = [*models[: MAX_NAMED_MODELS - 1], f"{len(models) - MAX_NAMED_MODELS + 1} more models"]
    return join_phrases(models)


def describe_comparisons(report: Report) -> list[str]:
    """Return sentences about the comparisons of a check.

    They state how many runs were compared with the source, how many results come from the cache, and how many models
    have no source.
    """
    return [*describe_runs(report), *describe_missing_sources(report)]


def describe_runs(report: Report) -> list[str]:
    """State how many runs were compared with the source, and how many results come from the cache, in sentences."""
    compared = [cell.model for cell in report.cells if cell.compared]
    sentences = []
    if compared:
        sentences.append(
            f"outputs compared with the source: {len(set(compared))} of {pluralize(len(report.models), 'model')}, "
            f"{len(compared)} of {pluralize(report.counts.get('ran', 0), 'run')}"
        )
    if reused := report.counts.get("reused", 0):
        sentences.append(f"{pluralize(reused, 'result')} reused from cache (disable with `--no-cache`)")
    return sentences


def describe_missing_sources(report: Report) -> list[str]:
    """Return a sentence with the number of models without a `source`; empty if no stage of the check needs it."""
    count = report.counts.get("without_source", 0)
    skipped = [name for name in ("parity", "export") if name in report.stages]
    if not count or not skipped:
        return []
    subject = f"{pluralize(count, 'model')} {'has' if count == 1 else 'have'} no `source`"
    checks = {"parity": "parity with source", "export": "export"}
    verb = "was" if len(skipped) == 1 else "were"
    return [f"{subject}; {' and '.join(checks[name] for name in skipped)} {verb} skipped"]


RATIO_METRICS = {"sqnr_db": "SNR {:.3g} dB", "cosine": "cosine {:.6g}", "top1": "top-1 agreement {:.4g}"}
"""Metric for which larger values mean better agreement -> template that formats a value."""

BUDGET_METRICS = {"time ratio": "run time", "memory ratio": "peak memory"}
"""Metric of a budget -> its name in messages. The values are ratios to the baseline."""

BOUND_ORIGINS = {"config": " from the config", "lock": " from the lock", "type": "", "measured": " measured"}
"""Origin of a limit -> phrase that states this origin; "" for default limits."""


def describe_measurements(measured: Sequence[Measured]) -> list[str]:
    """Return a line for each output and reference, and for each budget. Lines near or beyond their limits come first.

    Of all runs, the one that is nearest to its limit is described, with its signal-to-noise ratio and similar metrics.
    """
    runs: dict[tuple[str, ...], dict[tuple[str, str], list[Measured]]] = {}
    for figure in measured:
        budget = figure.metric.partition(", ")[0]
        compared = (budget, "") if budget in BUDGET_METRICS else (figure.output, figure.pair.partition(" against ")[2])
        run = runs.setdefault((figure.model, *compared), {}).setdefault((figure.pair, figure.case), [])
        run.append(figure)
    worst = [max(by_run.values(), key=lambda run: bound_usage(run[0])) for by_run in runs.values()]
    worst.sort(key=lambda run: bound_usage(run[0]), reverse=True)
    return [_describe_run(run) for run in worst if run[0].bound is not None]


def bound_usage(figure: Measured) -> float:
    """Return which share of the tolerance a measured value uses; 1 means that it is equal to its limit.

    Return infinity if the value is not finite or has no limit.
    """
    if figure.value is None or figure.bound is None:
        return math.inf
    if figure.metric in RATIO_METRICS:
        return 10.0 ** ((figure.bound - figure.value) / 20.0) if figure.metric == "sqnr_db" else 0.0
    return figure.value / figure.bound if figure.bound else figure.value * math.inf if figure.value else 0.0


def _describe_run(run: Sequence[Measured]) -> str:
    """Describe the values measured in one run, of which the first is compared with a limit."""
    first, others = run[0], {figure.metric: figure.value for figure in run[1:]}
    model, bound, origin = truncate(first.model), first.bound, BOUND_ORIGINS.get(first.bound_from, "")
    if first.metric in BUDGET_METRICS:
        ends = [f"{value:.2f}" for value in others.values() if value is not None]
        spread = f", measured between {' and '.join(ends)}" if ends else ""
        ratio = f"{first.value:.2f} times the {BUDGET_METRICS[first.metric]} of the baseline"
        return f"{model}: {ratio} (limit {bound:g}{origin}{spread}; {first.pair})"
    if first.value is None:
        value = "the difference is not finite"
    elif template := RATIO_METRICS.get(first.metric):
        value = f"{template.format(first.value)} (minimum {template.format(bound)}{origin})"
    else:
        difference = f"max difference {first.value:.2g}" if first.value else "no difference"
        value = f"{difference} (tolerance {bound:.2g}{origin})"
    ratios = [RATIO_METRICS[metric].format(ratio) for metric, ratio in others.items() if metric in RATIO_METRICS]
    details = "; ".join(filter(None, [", ".join(ratios), first.pair, truncate(first.case)]))
    return f"{model}: `{truncate(first.output)}`: {value}; {details}"


def render_verdict(report: Report) -> str:
    """Return the last line of the report, such as `fail: 2 models on 8 runtimes: 1 error; skipped stages: export`."""
    scope = "; ".join(filter(None, (*describe_limits(report), explain_failure(report))))
    return render_summary(report, describe_extent(report), report.skipped, scope)


def describe_extent(report: Report) -> str:
    """Return what was checked, such as `2 models on 8 runtimes`."""
    runtimes = list_runtimes(report)
    if report.models and runtimes and not report.cells:  # without a config
        return describe_releases(len(report.models), runtimes)
    return pluralize(len(report.models), "model") + (f" on {pluralize(len(runtimes), 'runtime')}" if runtimes else "")


def describe_limits(report: Report) -> list[str]:
    """List what the check leaves out, such as stages that were not selected, or findings that do not fail the check."""
    unpredicted = list_unpredicted_runtimes(report)
    missing = f"not predicted: {describe_runtimes(unpredicted, report)}" if unpredicted else ""
    unenforced = "findings do not fail the check (`--fail-on never`)" if report.fail_on == "never" else ""
    return [truncate(part) for part in (missing, report.scope, unenforced) if part]


def explain_failure(report: Report) -> str:
    """State that warnings fail the check if it has warnings but no errors; otherwise return ""."""
    levels = {finding.level for finding in report.findings if not finding.ignored}
    is_explained = report.fail_on != "warning" or "error" in levels or "warning" not in levels
    return "" if is_explained else "warnings fail the check (`--fail-on warning`)"


def describe_subject(report: Report) -> list[tuple[str, str]]:
    """Return what was checked and what it was compared with, as pairs of a name and a value.

    For example, the repository, the project in a repository with several projects, the commit, and the baseline.
    """
    facts = [("project", report.folder)]
    if (checkout := report.checkout) is not None:
        facts = [("repository", checkout.repository), *facts, ("commit", checkout.commit[:7])]
    if report.against is not None:
        facts.append(("baseline", baseline_name(report.against)))
    elif report.checkout is not None:
        is_missing = any(gap.stage == "lock" and not gap.model for gap in report.undecided)
        facts.append(("baseline", "not available" if is_missing else "none"))
    return [(name, truncate(value)) for name, value in facts if value]


WEAKENED_POLICY_RULE = "policy-weakened"


def count_weakenings(answer: Report | Matrix) -> int:
    """Count the findings about a weakened policy that are not ignored."""
    return sum(finding.rule == WEAKENED_POLICY_RULE and not finding.ignored for finding in answer.findings)


def describe_weakening(answer: Report | Matrix) -> str:
    """Return a note for the title of the report, such as `policy weakened by 2 changes`; "" if it was not weakened."""
    count = count_weakenings(answer)
    return f"policy weakened by {pluralize(count, 'change')}" if count else ""


def describe_releases(models: int, runtimes: Sequence[str]) -> str:
    """Describe what a check without a config covers, such as `1 model checked against 46 releases up to 1.31.1`."""
    newest = f" up to {runtimes[-1].rpartition(' ')[2]}" if len(runtimes) > 1 else ""
    releases = f" checked against {pluralize(len(runtimes), 'release')}{newest}" if runtimes else ""
    return f"{pluralize(models, 'model')}{releases}"


def render_summary(answer: Report | Matrix, extent: str, skipped: Sequence[NotDone] = (), scope: str = "") -> str:
    """Return the last line of a report, such as `pass: 2 models on 8 runtimes: 1 warning; skipped stages: export`.

    It states the verdict, what was checked (`extent`), the number of findings, and restrictions (`scope`).
    """
    levels = [finding.level for finding in answer.findings if not finding.ignored]
    accepted = [finding for finding in answer.findings if finding.ignored]
    kinds = {
        "new": sum(finding.newly_ignored for finding in accepted),
        "undecided": sum(finding.rule == UNDECIDED_RULE for finding in accepted),
    }
    details = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    others = {
        f"ignored ({details})" if details else "ignored": len(accepted),
        "undecided": len(merge_gaps(answer.undecided)),
        "skipped": len(merge_gaps(skipped)),
    }
    counts = [pluralize(levels.count(level), level) for level in LEVELS if level in levels]
    counts += [f"{number} {word}" for word, number in others.items() if number]
    verdict = f"{answer.verdict} (policy weakened)" if count_weakenings(answer) else answer.verdict
    line = ": ".join(part for part in (verdict, extent, ", ".join(counts)) if part)
    return f"{line}; {scope}" if scope else line


def list_unpredicted_runtimes(report: Report) -> list[str]:
    """Return the runtimes for which no result could be predicted; empty if the runtime stage was selected."""
    if "runtime" in report.stages:
        return []
    states: dict[str, set[CellState]] = {}
    for cell in report.cells:
        states.setdefault(cell.runtime, set()).add(cell.state)
    return [name for name, found in states.items() if "not predicted" in found <= {"not predicted", "warning"}]


def cells_by_model(report: Report) -> dict[str, dict[str, Cell]]:
    """Return the state of each model on each runtime, by path of the model and name of the runtime."""
    table: dict[str, dict[str, Cell]] = {model.path: {} for model in report.models}
    for cell in report.cells:
        table.setdefault(cell.model, {})[cell.runtime] = cell
    return table


def list_models_worst_first(report: Report) -> list[str]:
    """Return the paths of the models, sorted by the worst of the words in their table rows."""
    matrix, runtimes = cells_by_model(report), list_runtimes(report)
    words = {
        model: [STATE_WORDS[cells[name].state if name in cells else "not selected"] for name in runtimes]
        for model, cells in matrix.items()
    }
    return sorted(words, key=lambda model: min(map(WORST_WORDS_FIRST.index, words[model])))


CHANGE_KINDS = {"added": "is new", "removed": "was removed", "renamed": "was renamed", "changed": "changed"}


def baseline_name(against: Against) -> str:
    """Return the name and commit of the baseline, such as `origin/main (1a2b3c4)`."""
    name = truncate(against.name)
    return name if against.commit.startswith(name) else f"{name} ({against.commit[:7]})"


def changes_title(report: Report) -> str:
    """Return a title such as `changed since origin/main (1a2b3c4)`.

    Return "" if there is no baseline, or if no change was found but not all models could be compared.
    """
    all_compared = "lock" in report.stages and all(gap.stage != "lock" for gap in report.undecided)
    if report.against is None or not (report.changes or all_compared):
        return ""
    return f"{'changed' if report.changes else 'no model changed'} since {baseline_name(report.against)}"


def rank_models(report: Report) -> dict[str, int]:
    """Map each model with findings to the level of its worst finding, as an index into LEVELS."""
    return {finding.model: LEVELS.index(finding.level) for finding in reversed(list_active_findings(report))}


def sort_changes(report: Report) -> list[Change]:
    """Return the changes to models; models with the worst findings come first."""
    ranks = rank_models(report)
    return sorted(report.changes, key=lambda change: ranks.get(change.model, len(LEVELS)))


def describe_change(change: Change) -> str:
    """Return what happened to the model, such as `is new` or `was renamed from models/old.onnx`."""
    before = f" from {truncate(change.before)}" if change.before else ""
    return f"{CHANGE_KINDS[change.kind]}{before}"


def list_differences(change: Change, most: int) -> Sequence[str]:
    """Return at most `most` differences of a changed model and, if there are more, a line with their number."""
    shown = [truncate(difference) for difference in change.differences[:most]]
    more = len(change.differences) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown
