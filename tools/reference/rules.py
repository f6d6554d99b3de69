"""A page for each rule, generated from its docstring and its fixtures, and an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from onnxgate import rules
from onnxgate.core.findings import Level, Stage
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import FIRST_RELEASE, AnyRule

CASES = Path(__file__).resolve().parents[2] / "fixtures" / "rules"
MAX_MODEL_LINES = 12
"""Maximum length of a fixture's model; longer ones are not shown."""
INTRODUCTION = """\
`onnxgate explain RULE` prints the page of a rule in a terminal. Findings of a rule are errors unless a different level
is shown. In `onnxgate.toml`, you can set the level of a rule to `error`, `warning`, `note` or `off`:

```toml
[rules]
output-added = "error"
```

To accept individual findings, see [Adopt onnxgate](../guides/adopting.md)."""
EXAMPLES = {
    "attribute-unsupported": "of-a-newer-opset",
    "opset-too-new": "one-too-new",
    "optimization-mismatch": "fusion-changes-the-result",
}
"""Name of the typical case, for rules whose first case is unusual or long."""
CHANGES = "changes"
GROUPS = {
    Stage.FILE.value: "Is the file a valid, complete ONNX model?",
    Stage.LOCK.value: "Does the model match `onnxgate.lock` and the pinned versions?",
    Stage.SUPPORT.value: "Is each required runtime predicted to support the model?",
    Stage.RUNTIME.value: "Does the model load and run on every required runtime?",
    Stage.PARITY.value: "Do the outputs agree with the source and across runtimes?",
    Stage.EXPORT.value: "Does exporting the source again produce the committed model?",
    CHANGES: "What changed since the baseline? (stage: lock)",
    Stage.BUDGET.value: "Is the model within its limits for size, time and memory?",
    Stage.GATE.value: "Are the `[[ignore]]` entries still needed?",
}


def pages() -> dict[str, str]:
    """Return the index and a page for each rule, by file name."""
    return {"index.md": _index(), **{f"{rule.id}.md": _page(rule) for rule in rules.ALL}}


def _group(rule: AnyRule) -> str:
    return CHANGES if rule.subject is ModelChange else rule.stage.value


def _index() -> str:
    lines = ["# Rules", "", INTRODUCTION, ""]
    for group, question in GROUPS.items():
        members = sorted((rule for rule in rules.ALL if _group(rule) == group), key=lambda rule: rule.id)
        lines += [f"## {group.capitalize()}", "", question, "", *map(_index_line, members), ""]
    lines += ["```{toctree}", ":hidden:", "", *sorted(rule.id for rule in rules.ALL), "```", ""]
    return "\n".join(lines)


def _index_line(rule: AnyRule) -> str:
    level = "" if rule.level is Level.ERROR else f" ({rule.level.value})"
    summary = rule.summary.replace(" since the baseline", "") if _group(rule) == CHANGES else rule.summary
    return f"- [{rule.id}]({rule.id}.md){level}: {summary}"


def _page(rule: AnyRule) -> str:
    since = "" if rule.since == FIRST_RELEASE else f", since {rule.since}"
    level = f"[{rule.level.value.capitalize()}](../concepts/findings.md#level)"
    properties = f"*{level}, {rule.stage.value} stage{since}*"
    summary, _, rest = rule.page.partition("\n")
    lines = [f"# {rule.id}", "", properties, "", summary, rest.rstrip(), "", *_example(rule)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _example(rule: AnyRule) -> Iterator[str]:
    """Yield a finding of the rule. For a change, also yield the models before and after it if they are short."""
    cases = [case for case in _list_cases(rule.id) if _findings(case, rule.id)]
    if not cases:
        return

    def rank(case: Path) -> tuple[bool, bool, bool]:
        has_default_level = any(line.startswith(f"{rule.level.value} ") for line in _findings(case, rule.id))
        return EXAMPLES.get(rule.id) != case.name, not _model(case / "model.onnxtxt"), not has_default_level

    case = min(cases, key=rank)
    yield from ("", "## Example", "")
    before, model = _model(case / "before.onnxtxt"), _model(case / "model.onnxtxt")
    if before and model:
        yield from ("Baseline:", "", *before, "Changed model:", "", *model)
    yield from ("```text", _findings(case, rule.id)[0], "```", "")


def _model(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").rstrip() if path.exists() else ""
    return ["```text", text, "```", ""] if text and text.count("\n") < MAX_MODEL_LINES else []


def _list_cases(rule_id: str) -> list[Path]:
    return sorted(path.parent for path in (CASES / rule_id).glob("*/expected.txt"))


def _findings(case: Path, rule_id: str) -> list[str]:
    lines = (case / "expected.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.split()[1:2] == [rule_id]]
