"""A renamed input or output results in one finding, whatever the baseline is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from onnxgate import rules
from onnxgate.core.findings import Place, RuleHit
from onnxgate.evidence.lock import ModelChange, ModelLockComparison
from onnxgate.gate.results import resolution
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.project.lock.comparison import describe_model_changes, entry_from_facts

X, Y = ValueInfo("x", "tensor(float)", ("N",)), ValueInfo("y", "tensor(float)", ("N",))
BEFORE = ModelFacts("m.onnx", "aa", 1, 8, {"ai.onnx": 17}, "", (X,), (Y,), {"Relu": 1}, ())
PLACE = Place("onnxgate.lock", 7)


def find_rules(
    after: ModelFacts,
    *,
    from_lock: bool = False,
    levels: dict[str, str] | None = None,
    accepts: Callable[[RuleHit], bool] = lambda _: False,
) -> list[str]:
    """Return the rules of the findings about a model that was changed after it was locked."""
    baseline = "in the lock" if from_lock else "at `main`"
    entry = entry_from_facts(BEFORE)
    comparison = ModelLockComparison(
        facts=after,
        entry=entry,
        place=PLACE,
        pinned_opsets={},
        pinned_ir=None,
        opset_place=PLACE,
        ir_place=PLACE,
        changes=describe_model_changes(entry, entry_from_facts(after)),
    )
    change = ModelChange(before=BEFORE, after=after, place=PLACE, baseline=baseline, from_lock=from_lock)
    hits = list(resolution.apply_rules([comparison, change], rules.ALL, levels or {}))
    return [finding.rule for finding in resolution.merge_runtimes(resolution.resolve_hits(hits, accepts), ())]


RENAMED = {
    "input-renamed": msgspec.structs.replace(BEFORE, sha256="bb", inputs=(msgspec.structs.replace(X, name="image"),)),
    "output-renamed": msgspec.structs.replace(BEFORE, sha256="bb", outputs=(msgspec.structs.replace(Y, name="score"),)),
}


@pytest.mark.parametrize("rule", RENAMED)
def test_with_a_revision_as_baseline(rule: str) -> None:
    """The lock is stale for the same reason, so `model-changed` adds nothing."""
    assert [rule] == find_rules(RENAMED[rule])


@pytest.mark.parametrize("rule", RENAMED)
def test_with_the_lock_as_baseline(rule: str) -> None:
    """The change is not locked yet, so only `model-changed` reports it."""
    assert ["model-changed"] == find_rules(RENAMED[rule], from_lock=True)


@pytest.mark.parametrize("rule", RENAMED)
def test_model_changed_remains_unless_the_rename_fails_the_check(rule: str) -> None:
    """A rename that is accepted, off or only a warning does not hide that the lock is stale."""
    assert {"model-changed", rule} == {*find_rules(RENAMED[rule], accepts=lambda hit: hit.rule == rule)}
    assert ["model-changed"] == find_rules(RENAMED[rule], levels={rule: "off"})
    assert ["model-changed", rule] == find_rules(RENAMED[rule], levels={rule: "warning"})


def test_other_changes_are_reported() -> None:
    """A change of the opset is not a consequence of the rename."""
    after = msgspec.structs.replace(RENAMED["input-renamed"], opsets={"ai.onnx": 18})

    assert ["input-renamed", "model-changed"] == find_rules(after)
