"""A page per rule, made from its docstring and its fixtures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from onnxgate import rules
from onnxgate.core.findings import Stage
from onnxgate.rules.definition import AnyRule

CASES = Path(__file__).resolve().parents[2] / "fixtures" / "rules"
LONGEST = 40
"""Lines of a fixture's model; a longer one is not shown."""
STAGES = {
    Stage.FILE: "Is it a model at all, whole, and free of what runtimes get wrong?",
    Stage.LOCK: "Is it the model that was promised, with the stamps that were pinned, and what changed in it?",
    Stage.SUPPORT: "Does every locked release implement what the model needs? Nothing is run.",
    Stage.RUNTIME: "Does it really load and run?",
    Stage.PARITY: "Do outputs agree with the source, across releases, levels and engines?",
    Stage.EXPORT: "Does the source still export, to what is committed?",
    Stage.BUDGET: "Is it as small and as fast as was promised?",
    Stage.GATE: "Is the config still true?",
}


def pages() -> dict[str, str]:
    """Every page by its name: the index, and one for each rule."""
    return {"index.md": _index(), **{f"{rule.id}.md": _page(rule) for rule in rules.ALL}}


def _index() -> str:
    lines = ["# Rules", "", "Each finding is an instance of one of these. `onnxgate explain RULE` says the same of one"]
    lines += ["in a terminal, without the examples.", ""]
    for stage, question in STAGES.items():
        of_stage = sorted((rule for rule in rules.ALL if rule.stage is stage), key=lambda rule: rule.id)
        lines += [f"## {stage.value}", "", question, "", "| rule | level | |", "|---|---|---|"]
        lines += [f"| [{rule.id}]({rule.id}.md) | {rule.level.value} | {_cell(rule.summary)} |" for rule in of_stage]
        lines.append("")
    lines += ["```{toctree}", ":hidden:", "", *sorted(rule.id for rule in rules.ALL), "```", ""]
    return "\n".join(lines)


def _page(rule: AnyRule) -> str:
    stamp = f"*{rule.level.value} by default · stage {rule.stage.value} · since {rule.since}*"
    summary, _, rest = rule.page.partition("\n")
    lines = [f"# {rule.id}", "", stamp, "", summary, rest.rstrip(), "", *_example(rule.id), *_settings(rule)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _settings(rule: AnyRule) -> Iterator[str]:
    yield from ("", "## Its level", "", "```toml", "[rules]")
    yield f'{rule.id} = "{rule.level.value}"  # error, warning, note or off'
    yield from ("```", "", "One finding can be accepted by an [ignore](../guides/adopting.md).", "")


def _example(rule_id: str) -> Iterator[str]:
    """The first case on which it fires, and the first on which it is silent."""
    for title, case in (
        ("What it says", _case(rule_id, fires=True)),
        ("Where it is silent", _case(rule_id, fires=False)),
    ):
        if case is None:
            continue
        yield from ("", f"## {title}", "", f"*{case.name.replace('-', ' ')}*", "")
        before = _model(case / "before.onnxtxt")
        if before:
            yield from ("It was", "", *before, "It is", "")
        yield from _model(case / "model.onnxtxt")
        said = [line for line in _said(case) if f" {rule_id} " in f"{line} "]
        if said:
            yield from ("```text", *said, "```", "")


def _model(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").rstrip() if path.exists() else ""
    return ["```text", text, "```", ""] if text and text.count("\n") < LONGEST else []


def _case(rule_id: str, *, fires: bool) -> Path | None:
    cases = sorted(path.parent for path in (CASES / rule_id).glob("*/expected.txt"))
    found = [case for case in cases if any(line.split()[1:2] == [rule_id] for line in _said(case)) == fires]
    return found[0] if found else None


def _said(case: Path) -> list[str]:
    return [line for line in (case / "expected.txt").read_text(encoding="utf-8").splitlines() if line]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
