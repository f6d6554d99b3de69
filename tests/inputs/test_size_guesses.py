"""Alternative sizes to try if the default sizes do not run, and variations of those that do."""

from __future__ import annotations

from onnxgate.inputs.axis_sizes import MAX_PROBE_ELEMENTS, list_alternative_settings, resolve_shape, vary_setting
from onnxgate.model.facts import Dim, ValueInfo, count_elements


def _value(name: str, *shape: Dim, type: str = "tensor(float)") -> ValueInfo:
    return ValueInfo(name, type, shape)


WAVE = _value("x", "batch", "samples")
STATE = _value("h", 1, "h_batch", 4)


def test_guesses_reach_tables_halvings_waves_and_batches() -> None:
    """The alternatives include short and large sizes, even batches and equal sizes."""
    actual = [tuple(settings.values()) for settings in list_alternative_settings([WAVE], {})]

    assert actual[:2] == [(1, 8), (1, 16)]
    assert {(1, 128), (1, 4096), (2, 1600), (2, 8), (4, 8), (1, 1), (2, 2)} <= set(actual)


def test_guesses_do_not_change_configured_sizes() -> None:
    """Only axes without a configured size vary."""
    assert {settings["samples"] for settings in list_alternative_settings([WAVE], {"samples": [50, 60]})} == {50}


def test_no_guess_is_huge() -> None:
    """Images are limited in size, because one of 4096 by 4096 would take minutes and gigabytes."""
    picture = _value("x", "n", 3, "h", "w")
    actual = list(list_alternative_settings([picture], {}))

    assert max(each["h"] for each in actual) == 256
    assert max(count_elements(resolve_shape(picture, each)) for each in actual) <= MAX_PROBE_ELEMENTS


def test_only_the_leading_axis_changes() -> None:
    """Only the leading axis varies, so that a failure is caused by the batch size; an even batch stays even."""
    assert vary_setting([WAVE], {}, {"batch": 1, "samples": 8}) == (
        {"batch": 1, "samples": 8},
        {"batch": 3, "samples": 8},
    )
    assert vary_setting([WAVE], {}, {"batch": 2, "samples": 8})[1] == {"batch": 4, "samples": 8}


def test_renamed_batch_axis_varies_with_the_batch() -> None:
    """An axis that may be the batch under another name varies with it, such as that of an LSTM state."""
    base = {"batch": 1, "samples": 8, "h_batch": 1}

    assert vary_setting([WAVE, STATE], {}, base)[1] == {"batch": 3, "samples": 8, "h_batch": 3}


def test_rows_of_the_config_are_all_run() -> None:
    """All configured sizes are used; no other axis varies if the config sets the leading one."""
    assert vary_setting([WAVE], {"batch": [1, 2]}, {"batch": 1, "samples": 8}) == (
        {"batch": 1, "samples": 8},
        {"batch": 2, "samples": 8},
    )
