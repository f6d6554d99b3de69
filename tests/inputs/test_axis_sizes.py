"""Sizes of dynamic axes: values from the config, defaults by position, and formulas."""

from __future__ import annotations

import pytest

from onnxgate.inputs.axis_sizes import list_size_settings, resolve_dim
from onnxgate.model.facts import Dim, ValueInfo


def _value(name: str, *shape: Dim, type: str = "tensor(float)") -> ValueInfo:
    return ValueInfo(name, type, shape)


IDS = _value("ids", "batch", "time", type="tensor(int64)")
MASK = _value("mask", "batch", "time", type="tensor(bool)")


def test_configured_sizes_are_paired() -> None:
    """Two values for each axis result in two cases, not four."""
    size_settings = list_size_settings([IDS, MASK], {"batch": [1, 3], "time": [16, 50]})

    assert size_settings == ({"batch": 1, "time": 16}, {"batch": 3, "time": 50})


def test_shorter_lists_are_repeated() -> None:
    """Shorter lists are repeated, so that every value is used at least once."""
    size_settings = list_size_settings([IDS], {"batch": [1, 2, 3], "time": [16, 50]})

    assert [(size_setting["batch"], size_setting["time"]) for size_setting in size_settings] == [
        (1, 16),
        (2, 50),
        (3, 16),
    ]


def test_without_a_dynamic_axis_there_is_one_setting() -> None:
    """Configured sizes of axes that the model does not have are ignored."""
    assert list_size_settings([_value("x", 1, 3)], {"batch": [1, 3]}) == ({},)


def test_one_size_for_every_axis_is_one_case() -> None:
    """No defaults are added if the config sets all axes."""
    assert list_size_settings([IDS], {"batch": [2], "time": [7]}) == ({"batch": 2, "time": 7},)


def test_each_case_changes_one_kind_of_axis() -> None:
    """Each case varies one axis (batch 1 and 3, length 8 and 12), so that a failure identifies the axis."""
    size_settings = list_size_settings([IDS, MASK], {})

    assert size_settings == ({"batch": 1, "time": 8}, {"batch": 3, "time": 8}, {"batch": 1, "time": 12})


def test_configured_sizes_vary_before_defaults() -> None:
    """Configured sizes vary first; then the other axes vary with the first configured sizes."""
    size_settings = list_size_settings([IDS, MASK], {"batch": [2, 5]})

    assert size_settings == ({"batch": 2, "time": 8}, {"batch": 5, "time": 8}, {"batch": 2, "time": 12})


def test_axes_without_a_name_agree_by_position() -> None:
    """Unnamed axes in the same position have the same size, such as those of ids and their mask."""
    inputs = [_value("ids", "?", "?", type="tensor(int64)"), _value("mask", "?", "?"), _value("z", "?", "?", 4)]

    assert set(list_size_settings(inputs, {})[0].items()) == {
        *((f"{name}[0]", 1) for name in ("ids", "mask", "z")),
        *((f"{name}[1]", 8) for name in ("ids", "mask", "z")),
    }


def test_defaults_for_pictures_and_waveforms() -> None:
    """Height and width differ, and a waveform is long enough for the first convolutions."""
    pictures = _value("x", "n", 3, "height", "width")
    wave = _value("x", "n", "samples")

    assert list_size_settings([pictures], {})[2] == {"n": 1, "height": 96, "width": 64}
    assert list_size_settings([wave], {})[0] == {"n": 1, "samples": 1600}


def test_equal_positions_have_equal_defaults_whatever_their_names() -> None:
    """Axes in the same position have the same default even with different names, as tf2onnx writes them."""
    inputs = [_value("a", "unk__1", "time", type="tensor(int64)"), _value("b", "unk__2", "time")]

    assert list_size_settings(inputs, {})[1] == {"unk__1": 3, "time": 8, "unk__2": 3}


def test_unnamed_axes_get_a_name_and_can_be_set() -> None:
    """`x[1]` is the second axis of `x`."""
    assert list_size_settings([_value("x", "?", "?")], {"x[0]": [2], "x[1]": [5]}) == ({"x[0]": 2, "x[1]": 5},)


def test_sum_is_computed_from_its_terms() -> None:
    """A sum is computed from its terms, even if it comes first or is only known by its conventional name."""
    past = _value("past", "batch", 4, "past_sequence_length", 8)
    ids = _value("ids", "batch", "sequence_length", type="tensor(int64)")
    for total in ("past_sequence_length + sequence_length", "total_sequence_length"):
        mask = _value("attention_mask", "batch", total, type="tensor(int64)")
        first = list_size_settings([mask, ids, past], {"past_sequence_length": [5]})[0]

        assert first["past_sequence_length"] + first["sequence_length"] == first[total]


@pytest.mark.parametrize(
    ("names", "is_sum"),
    [
        (("past", "sequence", "total"), True),
        (("past_len", "cur_len", "total_len"), True),
        (("past", "width", "total"), False),
        (("time", "sequence", "total"), False),
        (("past", "seq_a", "seq_b", "total"), False),
        (("past", "sequence", "keys"), False),
    ],
)
def test_total_of_past_and_new_tokens(names: tuple[str, ...], is_sum: bool) -> None:
    """An axis named as the total is the sum if it is clear which other axes are meant."""
    inputs = [_value(name, "batch", 4, name, type="tensor(int64)") for name in names]
    first = list_size_settings(inputs, {names[0]: [5]})[0]

    assert first[names[-1]] == (5 + first[names[1]] if is_sum else 8)


@pytest.mark.parametrize(
    ("name", "size"),
    [("2*s0 + 1", 7), ("s0//2", 1), ("s0 - 1", 2), ("s0 - 9", 0), ("s0//0", 1), ("other + 1", 1), ("s0 +", 1)],
)
def test_formulas(name: str, size: int) -> None:
    """Only integer arithmetic is evaluated; other formulas have size 1, and no code is executed."""
    assert size == resolve_dim(name, {"s0": 3})


@pytest.mark.parametrize(("axes", "largest"), [("bcdh", 96), ("bcdhw", 12)])
def test_inputs_with_many_dynamic_axes_are_small(axes: str, largest: int) -> None:
    """Four inner axes with the usual sizes are 38 million elements for each item of the batch."""
    settings = list_size_settings([_value("x", *axes)], {})

    assert largest == max(max(setting.values()) for setting in settings)
    assert [1, 3, 1] == [setting["b"] for setting in settings]
