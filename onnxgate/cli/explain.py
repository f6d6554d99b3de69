"""`onnxgate explain`: a rule's page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from onnxgate.rules.registry import AnyRule


@click.command("explain")
@click.argument("rule", required=False)
def command(rule: str | None) -> None:
    """Say what RULE means, why it matters and what to do; without RULE, list all rules by stage."""
    lines = _list() if rule is None else _page(_found(rule))
    click.echo("\n".join(lines))


def _found(name: str) -> AnyRule:
    from onnxgate import rules
    from onnxgate.errors import UsageError

    if name in rules.by_id:
        return rules.by_id[name]
    import difflib

    near = difflib.get_close_matches(name, rules.by_id, 1, 0.5)
    hint = f"did you mean `{near[0]}`?" if near else "`onnxgate explain` lists all rules"
    raise UsageError(f"there is no rule `{name}`", hint=hint)


def _page(rule: AnyRule) -> Iterator[str]:
    """Its docstring below what the catalogue says of it."""
    yield click.style(rule.id, bold=True)
    yield f"{rule.level.value} by default, stage {rule.stage.value}, since {rule.since}"
    yield ""
    for line in rule.page.splitlines():
        yield click.style(line.lstrip("# "), bold=True) if line.startswith("#") else line


def _list() -> Iterator[str]:
    from onnxgate import rules
    from onnxgate.findings import Stage

    width = max(map(len, rules.by_id), default=0)
    for stage in Stage:
        of_stage = [rule for rule in rules.ALL if rule.stage is stage]
        if of_stage:
            yield click.style(stage.value, bold=True)
            yield from (f"  {rule.id.ljust(width)}  {rule.level.value:7}  {rule.summary}" for rule in of_stage)
            yield ""
    yield "`onnxgate explain RULE` says more"
