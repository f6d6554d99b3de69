"""Texts shared by all formats."""

from __future__ import annotations

import msgspec
import pytest

from onnxgate.core.report import Measured
from onnxgate.formats import wording
from tests.harness.reports.sample_reports import finding, not_done, report, runtime


@pytest.mark.parametrize(
    ("releases", "expected"),
    [
        (["1.18.1"], "onnxruntime 1.18.1"),
        (["1.19.2", "1.18.1"], "onnxruntime 1.18.1 and 1.19.2"),
        (["1.18.1", "1.19.2", "1.20.1"], "onnxruntime 1.18.1–1.20.1"),
        (["1.18.1", "1.20.1", "1.21.1", "1.22.1"], "onnxruntime 1.18.1 and 1.20.1–1.22.1"),
        (["1.18.1", "1.20.1", "1.22.1"], "onnxruntime 1.18.1, 1.20.1 and 1.22.1"),
        (["9.9.9"], "onnxruntime 9.9.9"),
        ([], ""),
    ],
)
def test_runtimes(releases: list[str], expected: str) -> None:
    """Three or more adjacent releases are shown as a range, which never spans a gap."""
    assert expected == wording.describe_runtimes([f"onnxruntime {release}" for release in releases], report())


def test_runtimes_are_in_the_order_of_their_releases() -> None:
    """Runtimes are sorted by release (1.9 before 1.10), whatever the order in the report."""
    mixed = report(runtimes=(runtime("1.31.1"), runtime("1.9.0"), runtime("1.10.0"), runtime("1.31.1")))

    assert wording.list_runtimes(mixed) == ("onnxruntime 1.9.0", "onnxruntime 1.10.0", "onnxruntime 1.31.1")


def test_engines_are_not_mixed_into_one_range() -> None:
    """A range contains releases of only one engine."""
    two = report(runtimes=(*(runtime(v) for v in ("1", "2", "3")), runtime("4", "openvino")))

    assert wording.describe_runtimes(wording.list_runtimes(two), two) == "onnxruntime 1–3 and openvino 4"


def test_same_reason_in_other_stages_is_separate() -> None:
    """Two models with the same reason in different stages are separate entries."""
    incomplete = not_done(["a"], stage="runtime") + not_done(["b"], stage="parity")

    assert [gap.about(report()) for gap in wording.merge_gaps(incomplete)] == ["runtime: a", "parity: b"]


def test_gaps_of_different_runtimes_are_not_multiplied() -> None:
    """`a` on one runtime and `b` on another must not be merged to both on both."""
    incomplete = not_done(["a"], runtime="onnxruntime 1.18.1") + not_done(["b"], runtime="onnxruntime 1.19.2")

    assert [gap.about(report()) for gap in wording.merge_gaps(incomplete)] == [
        "runtime: a on onnxruntime 1.18.1",
        "runtime: b on onnxruntime 1.19.2",
    ]


@pytest.mark.parametrize(
    ("changed", "explained"),
    [
        ({}, ("see `a-rule` above", "")),
        ({"fix": "narrow the target to >=1.21, or run `git lfs pull`"}, ("see `a-rule` above", "")),
        ({"model": "b"}, ("reason", "run `git lfs pull`")),
        ({"fix": "export again"}, ("reason", "run `git lfs pull`")),
        ({"ignored": "accepted"}, ("reason", "run `git lfs pull`")),
    ],
)
def test_a_reason_is_shown_once(changed: dict[str, str], explained: tuple[str, str]) -> None:
    """A gap refers to the finding above that has the same fix, unless the finding is hidden or of another model."""
    (undone,) = not_done(["a"], reason="reason", hint="run `git lfs pull`")
    shown = finding(**{"rule": "a-rule", "model": "a", "fix": "run `git lfs pull`; in CI, set `lfs: true`", **changed})
    (gap,) = wording.merge_gaps([undone])

    assert gap.explain(report(findings=(shown,))) == explained


def measure(**fields: object) -> Measured:
    """Return a measured difference with these fields."""
    usual = Measured(
        model="m", output="y", pair="p", case="", metric="max_abs", value=1.0, bound=9.0, bound_from="type"
    )
    return msgspec.structs.replace(usual, **fields)


@pytest.mark.parametrize(
    ("values", "described"),
    [
        ([(1e-7, 1e-5), (1e-6, 1e-5)], "max difference 1e-06 (tolerance 1e-05)"),
        ([(None, 1.0), (5.0, 1.0)], "the difference is not finite"),
        ([(0.0, 0.0), (1e-9, 1e-5)], "max difference 1e-09 (tolerance 1e-05)"),
        ([(1.0, 0.0), (1.0, 2.0)], "max difference 1 (tolerance 0)"),
    ],
)
def test_the_run_nearest_to_its_limit_is_described(values: list[tuple[float | None, float]], described: str) -> None:
    """Non-finite differences are worst, and a limit of 0 causes no division error."""
    figures = [
        measure(pair=f"{index} against p", value=value, bound=bound) for index, (value, bound) in enumerate(values)
    ]
    (line,) = wording.describe_measurements(figures)

    assert line.startswith(f"m: `y`: {described}; ")


def test_each_output_and_reference_has_one_line() -> None:
    """The line has the metrics of the run that it describes, and the line nearest to its limit is the first."""
    figures = [
        measure(pair="a 1 against the source", case="c", value=1.0),
        measure(pair="a 1 against the source", case="c", metric="cosine", value=0.5, bound=None),
        measure(pair="a 1 against the source", case="c", metric="max_ulp", value=7.0, bound=None),
        measure(pair="a 2 against the source", case="d", value=2.0),
        measure(pair="a 2 against the source", case="d", metric="cosine", value=0.25, bound=None),
        measure(pair="a 1 against a 2", case="c", value=8.0, bound_from="config"),
    ]

    assert [
        "m: `y`: max difference 8 (tolerance 9 from the config); a 1 against a 2; c",
        "m: `y`: max difference 2 (tolerance 9); cosine 0.25; a 2 against the source; d",
    ] == wording.describe_measurements(figures)


def test_budget_is_not_an_output_difference() -> None:
    """A budget's ratio is described with its confidence interval, apart from the outputs."""
    ratios = [
        measure(output="", metric=f"time ratio{end}", value=value, bound=1.2, bound_from="config")
        for end, value in (("", 2.87), (", low", 2.83), (", high", 2.91))
    ]

    assert [
        "m: 2.87 times the run time of the baseline (limit 1.2 from the config, measured between 2.83 and 2.91; p)",
        "m: `y`: max difference 1 (tolerance 9); p",
    ] == wording.describe_measurements([*ratios, measure()])
