"""Selection of input cases by name."""

from __future__ import annotations

import pytest

from onnxgate.core.errors import UsageError
from onnxgate.inputs.case_selection import EXAMPLE_CASE_NAME, CaseSelection, require_known_cases
from onnxgate.model.facts import ValueInfo

INPUTS = (ValueInfo("ids", "tensor(int64)", ("batch", "past + time")), ValueInfo("x", "tensor(float)", ("batch", 3)))
USUAL = ("sizes batch=1 time=16", "sizes batch=3 time=16")


def test_sizes_are_parsed_from_the_name() -> None:
    """The sizes are parsed from the name, even for cases that are not default, and with any axis names."""
    asked = CaseSelection(cases=("sizes batch=7 past + time=9", "sizes batch=7", EXAMPLE_CASE_NAME))

    assert [choice.sizes for choice in asked.choices(INPUTS)] == [{"batch": 7, "past + time": 9}]


def test_model_without_dynamic_axes_has_no_sizes() -> None:
    """A model without dynamic axes has no size settings."""
    assert list(CaseSelection(cases=("sizes ",)).choices(INPUTS[:0])) == []


def test_all_cases_are_selected_by_default() -> None:
    """All cases are selected unless some are named; a seed alone excludes none."""
    assert (
        CaseSelection(seed=7).takes("a"),
        CaseSelection(cases=("a",)).takes("a"),
        CaseSelection(cases=("a",)).takes("b"),
    ) == (
        True,
        True,
        False,
    )


def test_unknown_name_lists_the_nearest() -> None:
    """An unknown name is an error, so that a typing mistake does not result in a check without cases."""
    with pytest.raises(UsageError) as caught:
        require_known_cases(CaseSelection(cases=("sizes batch=3",)), USUAL, sourced=False)

    assert caught.value.message == "no selected model has the input case `sizes batch=3`"
    assert caught.value.hint == "similar cases: `sizes batch=3 time=16` and `sizes batch=1 time=16`"


def test_example_of_a_source_is_known() -> None:
    """The source's example case is known only if a selected model has a source."""
    require_known_cases(CaseSelection(cases=(EXAMPLE_CASE_NAME,)), USUAL, sourced=True)
    with pytest.raises(UsageError):
        require_known_cases(CaseSelection(cases=(EXAMPLE_CASE_NAME,)), USUAL, sourced=False)
