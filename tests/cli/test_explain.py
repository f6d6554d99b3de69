"""`onnxgate explain`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from onnxgate import rules
from onnxgate.cli.explain import command
from onnxgate.core.errors import UsageError
from onnxgate.rules.definition import FIRST_RELEASE


@pytest.mark.parametrize("rule", rules.ALL, ids=lambda rule: rule.id)
def test_every_rule_has_a_page(rule: rules.AnyRule) -> None:
    """The text of a rule contains its level, its stage, its release unless it is the first, and its docstring."""
    actual = CliRunner().invoke(command, [rule.id]).output

    since = "" if rule.since == FIRST_RELEASE else f", since {rule.since}"
    assert actual.startswith(f"{rule.id}\n{rule.level.value} by default, stage {rule.stage.value}{since}\n\n")
    assert rule.summary in actual
    assert "\nWhat to do\n" in actual


def test_all_rules_are_listed() -> None:
    """Without a name, each rule is listed once with its summary."""
    actual = CliRunner().invoke(command, []).output

    assert [actual.count(f"  {rule.id} ") for rule in rules.ALL] == [1] * len(rules.ALL)
    assert all(rule.summary in actual for rule in rules.ALL)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("opset-to-new", "did you mean `opset-too-new`?"),
        ("ir", "rules with `ir` in their names: `ir-version-mismatch`, `ir-version-too-new`"),
        ("zzz", "run `onnxgate explain` to list all rules"),
    ],
)
def test_an_unknown_rule(name: str, hint: str) -> None:
    """The error suggests the nearest rule name, or the rules that contain the word."""
    with pytest.raises(UsageError) as error:
        command.main([name], standalone_mode=False)

    assert (error.value.exit_code, error.value.hint) == (2, hint)
