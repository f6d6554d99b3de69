"""Property tests of the rules about changes: compatible changes have no finding, each break has one."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxgate import rules
from onnxgate.core.findings import Place, follows_from
from onnxgate.core.report import Finding
from onnxgate.evidence.lock import ModelChange
from onnxgate.gate.results import resolution
from onnxgate.model.facts import Dim, ModelFacts, ValueInfo

CHANGE_RULES = [rule for rule in rules.ALL if rule.subject is ModelChange]
TYPES = ("tensor(float)", "tensor(float16)", "tensor(int64)", "tensor(bool)")
Values = tuple[ValueInfo, ...]

names = st.text(string.ascii_lowercase, min_size=1, max_size=4)
dims = st.one_of(st.integers(1, 4), st.sampled_from(["N", "M", "T", "?"]))
shapes = st.one_of(st.none(), st.lists(dims, max_size=3).map(tuple))
values = st.builds(ValueInfo, names, st.sampled_from(TYPES), shapes)
interfaces = st.lists(values, min_size=1, max_size=5, unique_by=lambda value: value.name).map(tuple)


ONE_OUTPUT = (ValueInfo("y", "tensor(float)", (1,)),)


def facts(inputs: Values, outputs: Values = ONE_OUTPUT) -> ModelFacts:
    """Return a model with this interface."""
    return ModelFacts("m.onnx", "0" * 64, 100, 8, {"ai.onnx": 18}, "", inputs, outputs, {"Relu": 1}, ())


def apply_rules(before: ModelFacts, after: ModelFacts, *, from_lock: bool = False) -> list[Finding]:
    """Return the findings of all rules about changes."""
    change = ModelChange(before=before, after=after, place=Place("m.onnx"), baseline="at `main`", from_lock=from_lock)
    return resolution.merge_runtimes(
        resolution.resolve_hits(list(resolution.apply_rules([change], CHANGE_RULES, {}))), ()
    )


def breaks(before: ModelFacts, after: ModelFacts) -> list[str]:
    """Return the rules of errors."""
    return [finding.rule for finding in apply_rules(before, after) if finding.level == "error"]


def with_symbols(value: ValueInfo, spell: Callable[[str], str]) -> ValueInfo:
    """Return the value with other names for its axes."""
    if value.shape is None:
        return value
    return msgspec.structs.replace(value, shape=tuple(d if isinstance(d, int) else spell(d) for d in value.shape))


def replaced(values: Values, index: int, **fields: object) -> Values:
    """Return the interface with one changed value."""
    changed = msgspec.structs.replace(values[index], **fields)
    return (*values[:index], changed, *values[index + 1 :])


@given(interfaces, interfaces)
def test_an_equal_interface_has_no_finding(inputs: Values, outputs: Values) -> None:
    """An unchanged interface breaks no caller."""
    assert [] == apply_rules(facts(inputs, outputs), facts(inputs, outputs))


@given(interfaces, interfaces)
def test_renamed_axes_break_no_caller(inputs: Values, outputs: Values) -> None:
    """Renaming all axes, or naming unnamed ones, is compatible."""
    fresh = iter(range(1000))

    def spell(symbol: str) -> str:
        return f"axis_{next(fresh)}" if symbol == "?" else f"{symbol}_renamed"

    renamed = [tuple(with_symbols(value, spell) for value in side) for side in (inputs, outputs)]

    assert [] == apply_rules(facts(inputs, outputs), facts(*renamed))


@given(interfaces)
def test_wider_inputs_break_no_caller(inputs: Values) -> None:
    """Dynamic axes and unknown shapes accept more than before."""
    dynamic = tuple(
        msgspec.structs.replace(v, shape=None if v.shape is None else tuple("?" for _ in v.shape)) for v in inputs
    )
    unknown = tuple(msgspec.structs.replace(v, shape=None) for v in inputs)

    assert [[], []] == [apply_rules(facts(inputs), facts(each)) for each in (dynamic, unknown)]


def static(dim: Dim) -> int:
    """Return a different size."""
    return dim + 1 if isinstance(dim, int) else 7


MUTATIONS: dict[str, Callable[[Values, int], Values | None]] = {
    "input-added": lambda values, at: (*values[:at], ValueInfo("added!", "tensor(int8)", (9,)), *values[at:]),
    "input-removed": lambda values, at: (*values[:at], *values[at + 1 :]),
    "input-renamed": lambda values, at: replaced(values, at, name="renamed!"),
    "input-type-changed": lambda values, at: replaced(values, at, type="tensor(int8)"),
    "input-shape-narrowed": lambda values, at: narrowed(values, at),
}


def narrowed(values: Values, at: int) -> Values | None:
    """Make one axis static; return None if the value has no axes."""
    shape = values[at].shape
    if not shape:
        return None
    axis = at % len(shape)
    return replaced(values, at, shape=(*shape[:axis], static(shape[axis]), *shape[axis + 1 :]))


@pytest.mark.parametrize("rule", MUTATIONS)
@given(interfaces, st.data())
def test_one_break_of_an_input_is_one_finding(rule: str, inputs: Values, data: st.DataObject) -> None:
    """A changed input is reported by the rule for its change, in any position."""
    after = MUTATIONS[rule](inputs, data.draw(st.integers(0, len(inputs) - 1)))
    if after is not None:
        assert [rule] == breaks(facts(inputs), facts(after))


OUTPUT_MUTATIONS: dict[str, Callable[[Values, int], Values | None]] = {
    "output-removed": MUTATIONS["input-removed"],
    "output-renamed": MUTATIONS["input-renamed"],
    "output-type-changed": MUTATIONS["input-type-changed"],
    "output-shape-changed": lambda values, at: (
        None if values[at].shape is None else replaced(values, at, shape=(*(values[at].shape or ()), 1))
    ),
}


@pytest.mark.parametrize("rule", OUTPUT_MUTATIONS)
@given(interfaces, st.data())
def test_one_break_of_an_output_is_one_finding(rule: str, outputs: Values, data: st.DataObject) -> None:
    """A changed output is reported by the rule for its change, in any position."""
    after = OUTPUT_MUTATIONS[rule](outputs, data.draw(st.integers(0, len(outputs) - 1)))
    if after is not None:
        assert [rule] == breaks(facts((), outputs), facts((), after))


@given(interfaces, st.integers(0, 5))
def test_an_output_before_others_is_one_finding(outputs: Values, at: int) -> None:
    """An inserted output changes the order if other outputs follow it, and otherwise is a new output."""
    new = ValueInfo("added!", "tensor(int8)", (9,))
    actual = apply_rules(facts((), outputs), facts((), (*outputs[:at], new, *outputs[at:])))

    assert [("note", "output-added") if at >= len(outputs) else ("error", "io-reordered")] == [
        (each.level, each.rule) for each in actual
    ]


@given(interfaces, st.randoms(use_true_random=False))
def test_another_order_is_one_finding(outputs: Values, random: object) -> None:
    """A changed order of outputs is one finding, regardless of the number of moved outputs."""
    shuffled = list(outputs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert ([] if tuple(shuffled) == outputs else ["io-reordered"]) == breaks(
        facts((), outputs), facts((), tuple(shuffled))
    )


@given(interfaces, interfaces)
@settings(max_examples=300)
def test_added_and_removed_names_are_reported(before: Values, after: Values) -> None:
    """Each added or removed name of any two interfaces is in a message."""
    message = " ".join(each.message for each in apply_rules(facts(before), facts(after)) if each.level == "error")

    for name in {value.name for value in before} ^ {value.name for value in after}:
        assert f"`{name}`" in message


@given(interfaces, interfaces, st.randoms(use_true_random=False))
def test_the_order_of_rules_does_not_matter(before: Values, after: Values, random: object) -> None:
    """The findings and their order do not depend on the order of the rules."""
    change = ModelChange(before=facts(before), after=facts(after), place=Place("m.onnx"), baseline="at `main`")
    shuffled = list(CHANGE_RULES)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    actual = [
        resolution.merge_runtimes(resolution.resolve_hits(list(resolution.apply_rules([change], each, {}))), ())
        for each in (CHANGE_RULES, shuffled)
    ]

    assert actual[0] == actual[1]


def one_size(before: Sequence[Dim], after: Sequence[Dim]) -> list[tuple[str, str]]:
    """Return the findings if each dimension is the only axis of an input."""
    sides = [
        tuple(ValueInfo(f"x{i}", "tensor(float)", (dim,)) for i, dim in enumerate(side)) for side in (before, after)
    ]
    return [(each.level, each.rule) for each in apply_rules(facts(sides[0]), facts(sides[1]))]


NARROWED = "input-shape-narrowed"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("N", "M"), ("N", "N"), [("error", NARROWED)]),
        (("N", 4), ("N", "N"), [("error", NARROWED)]),  # 3 and 4 were accepted before
        ((4, 4), ("N", "N"), []),  # only 4 and 4 were accepted before
        (("N", "N"), ("M", "M"), []),
        (("N", "N"), ("N", "M"), []),
        (("?", "?"), ("N", "N"), [("warning", NARROWED)]),
        (("?", "N"), ("N", "N"), [("warning", NARROWED)]),
        (("?", "N", "M"), ("N", "N", "N"), [("error", NARROWED)]),
        (("?", "?"), ("?", "?"), []),
        (("N", "M"), (4, "M"), [("error", NARROWED)]),
        (("N", "N"), (4, 4), [("error", NARROWED), ("error", NARROWED)]),
        (("unk__1", "unk__2"), ("N", "N"), [("warning", NARROWED)]),
        (("N", "M", "K", "L"), ("A", "A", "B", "B"), [("error", NARROWED), ("error", NARROWED)]),
    ],
)
def test_axes_of_one_size(before: tuple[Dim, ...], after: tuple[Dim, ...], expected: list[tuple[str, str]]) -> None:
    """Axes that were declared as independent are errors, unnamed ones warnings."""
    assert expected == one_size(before, after)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ((1, "N"), (1, "N"), []),  # callers that passed 1 still get 1
        ((1, "N"), (1, "M"), ["warning"]),  # the size of the other axis is unknown
        ((1, "N"), (2, "N"), ["warning"]),
        ((1, "N"), (1, "?"), ["warning"]),
        (("N", "N"), (1, "N"), ["warning"]),
        (("N", "N"), ("M", 1), []),
        (("N", "N"), (1, 2), ["error"]),
    ],
)
def test_sizes_of_outputs(inputs: tuple[Dim, Dim], outputs: tuple[Dim, Dim], expected: list[str]) -> None:
    """A size is lost if callers cannot derive it from their inputs."""
    before, after = (
        facts((ValueInfo("x", "tensor(float)", (x,)),), (ValueInfo("y", "tensor(float)", (y,)),))
        for x, y in zip(inputs, outputs, strict=True)
    )

    assert expected == [each.level for each in apply_rules(before, after) if each.rule == "output-shape-changed"]


def test_model_changed_replaces_changes_since_the_lock() -> None:
    """Changes since the lock are reported only if `model-changed` is off, ignored or less severe."""
    before, after = facts((ValueInfo("x", "tensor(float)", (1,)),)), facts(())
    change = ModelChange(before=before, after=after, place=Place("m.onnx"), baseline="in the lock", from_lock=True)
    hits = [hit for rule in CHANGE_RULES for hit in rule.judge(change)]

    assert [follows_from("model-changed")] == [hit.relations for hit in hits]


@pytest.mark.parametrize(
    ("against", "options"), [("origin/main", "--against origin/main "), ("HEAD~2", "--against 'HEAD~2' "), ("", "")]
)
def test_the_command_that_prints_the_ignore(against: str, options: str) -> None:
    """The command selects the same baseline: without it, the check does not report the change."""
    before, after = facts((ValueInfo("x", "tensor(float)", (1,)),)), facts(())
    change = ModelChange(before=before, after=after, place=Place("m.onnx"), baseline="at …", against=against)
    (hit,) = [hit for rule in CHANGE_RULES for hit in rule.judge(change)]

    assert f"accept the change with the entry that `onnxgate check {options}--show-ignores` prints" in hit.fix


def test_outputs_with_the_same_name() -> None:
    """ONNX Runtime loads such a model; the second output counts separately."""
    y = ValueInfo("y", "tensor(float)", (1,))

    assert [] == apply_rules(facts((), (y, y)), facts((), (y, y)))
    assert ["output-removed"] == breaks(facts((), (y, y)), facts((), (y,)))
