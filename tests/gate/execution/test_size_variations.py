"""Other sizes of dynamic axes of which only one size is known to work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from onnxgate.core.jobs import CaseResult, Failure
from onnxgate.gate.execution.size_variations import MAX_RUNS, FoundSizes, VariationSearch
from onnxgate.inputs.axis_sizes import list_guessed_axes
from onnxgate.model.facts import ValueInfo

Sizes = Mapping[str, int]
IMAGE = (ValueInfo("x", "tensor(float)", ("batch", 3, "h", "w")),)
PAST = (ValueInfo("x", "tensor(float)", ("batch", "a", 4)), ValueInfo("m", "tensor(float)", ("batch", "b")))
MESSAGE = "Attempting to broadcast an axis by a dimension other than 1. {} by {}"


def _search(
    base: Sizes,
    accepts: Callable[[Sizes], bool],
    *,
    inputs: Sequence[ValueInfo] = IMAGE,
    axes: Sequence[str] = ("h", "w"),
    sizes: Mapping[str, Sequence[int]] | None = None,
    explain: Callable[[Sizes], str] = lambda _: "does not fit",
    memory: bool = False,
    limit: int = MAX_RUNS + 1,
) -> FoundSizes:
    tried: list[Sizes] = []

    def run(setting: Sizes) -> list[CaseResult]:
        tried.append(setting)
        failure = Failure(type="Fail", text=explain(setting), memory=memory)
        return [CaseResult() if accepts(setting) else CaseResult(failure=failure)]

    guessed = list_guessed_axes(inputs, sizes or {})
    found = VariationSearch(inputs, sizes or {}, guessed, base, run).find(axes)
    assert len(tried) <= limit
    return found


@pytest.mark.parametrize(
    ("base", "accepts", "other"),
    [
        (64, lambda h, w: h % 32 == w % 32 == 0, (128, 128)),
        (65, lambda h, w: h % 64 == w % 64 == 1, (129, 129)),
        (63, lambda h, w: h % 64 == w % 64 == 63, (127, 127)),
        (112, lambda h, w: h <= 112 and w <= 112, (56, 56)),
        (100, lambda h, w: h == w, (200, 200)),
        (512, lambda h, w: min(h, w) >= 400, (640, 640)),
        (640, lambda h, w: h % 32 == w % 32 == 0, (320, 320)),
        (64, lambda h, w: math.isqrt(h) ** 2 == h == w, (256, 256)),
    ],
)
def test_supported_sizes_are_found(base: int, accepts: Callable[[int, int], bool], other: tuple[int, int]) -> None:
    """Multiples, minimum and maximum sizes, squares and equal axes are valid. The other size becomes a case."""
    found = _search({"batch": 1, "h": base, "w": base}, lambda it: accepts(it["h"], it["w"]))

    assert found == FoundSizes(({"batch": 1, "h": other[0], "w": other[1]},))


def test_single_sizes_of_several_axes_are_one_case() -> None:
    """A table of positions fixes height and width, also if a stride rounds neighboring sizes."""
    found = _search({"batch": 1, "h": 56, "w": 56}, lambda it: it["h"] // 8 == it["w"] // 8 == 7)

    assert found == FoundSizes((), {"batch": 1, "h": 112, "w": 112}, ("h", "w"))


def test_axis_with_a_single_size_beside_one_that_varies() -> None:
    """Only the axis that cannot vary is named, and the other one varies in a case of its own."""
    found = _search({"batch": 1, "h": 48, "w": 320}, lambda it: it["h"] == 48)

    assert found == FoundSizes(({"batch": 1, "h": 48, "w": 160},), {"batch": 1, "h": 96, "w": 320}, ("h",))


def test_axes_may_depend_on_each_other() -> None:
    """The error text contains the size that another axis must have."""
    found = _search(
        {"batch": 1, "a": 32, "b": 40},
        lambda it: it["b"] == it["a"] + 8,
        inputs=PAST,
        axes=("a", "b"),
        explain=lambda it: MESSAGE.format(it["b"], it["a"] + 8),
    )

    assert found == FoundSizes(({"batch": 1, "a": 64, "b": 72},))


def test_axis_may_depend_on_a_configured_axis() -> None:
    """The configured sizes are not changed in a case, but may be the reason why an axis cannot vary."""
    found = _search({"batch": 1, "h": 48, "w": 48}, lambda it: it["h"] == it["w"], axes=("w",), sizes={"h": [48]})

    assert found == FoundSizes()


@pytest.mark.parametrize("name", ["?", "unk__12", "p2o.DynamicDimension.2", "unknown"])
def test_axes_without_a_declared_name_may_have_one_size(name: str) -> None:
    """Converters write such names if they do not know the size."""
    inputs = (ValueInfo("x", "tensor(float)", ("batch", 3, name)),)
    axis = "x[2]" if name == "?" else name

    assert _search({"batch": 1, axis: 48}, lambda it: it[axis] == 48, inputs=inputs, axes=(axis,)) == FoundSizes()


@pytest.mark.parametrize(
    ("text", "memory", "reason"),
    [
        ("indices element out of data bounds", False, "generated values may be invalid at other sizes"),
        ("bad", True, "a run with other sizes crashed or exceeded a limit"),
    ],
)
def test_other_causes_show_nothing_about_sizes(text: str, memory: bool, reason: str) -> None:
    """Invalid values and memory limits are not the fault of the sizes, but it is reported that no other was run."""
    base = {"batch": 1, "h": 48, "w": 48}
    found = _search(base, lambda it: it == base, explain=lambda _: text, memory=memory)

    assert found == FoundSizes(untested=("h", "w"), reason=reason)
    assert found.describe_untested() == f"`h`, `w` were run with one size only, because {reason}"


def test_an_image_may_have_a_fixed_area() -> None:
    """A table of positions fixes the number of patches, so that one side cannot change alone."""
    found = _search({"batch": 1, "h": 64, "w": 16}, lambda it: it["h"] // 8 * (it["w"] // 8) == 16)

    assert {"batch": 1, "h": 16, "w": 64} in found.settings
    assert found.fixed == ()


MANY = tuple(ValueInfo(name, "tensor(float)", ("batch", f"t{name}", f"f{name}")) for name in "abcd")
MANY_BASE = {
    "batch": 1,
    **{f"{kind}{name}": 5 + 2 * i for i, (kind, name) in enumerate((k, n) for n in "abcd" for k in "tf")},
}


def _find_fixed(setting: Sizes, fixed: Sequence[str]) -> str:
    return next((name for name in fixed if setting[name] != MANY_BASE[name]), "")


@pytest.mark.parametrize("count", [8, 7, 5])
def test_error_texts_name_many_fixed_axes(count: int) -> None:
    """Axes that are not named change together. Two different sizes of each fixed axis suffice."""
    fixed = [*MANY_BASE][1 : count + 1]

    def explain(setting: Sizes) -> str:
        name = _find_fixed(setting, fixed)
        return f"invalid dimensions: Got: {setting[name]} Expected: {MANY_BASE[name]}" if name else ""

    found = _search(
        MANY_BASE, lambda it: not _find_fixed(it, fixed), inputs=MANY, axes=[*MANY_BASE][1:], explain=explain, limit=17
    )

    assert (found.fixed, found.untested) == (tuple(fixed), ())
    assert all(any(it[name] != MANY_BASE[name] for it in found.settings) for name in [*MANY_BASE][count + 1 :])


def test_many_fixed_axes_that_no_error_text_names() -> None:
    """The number of runs is limited, and the report names the axes that were run with one size."""
    found = _search(MANY_BASE, lambda it: it == MANY_BASE | {"fd": it["fd"]}, inputs=MANY, axes=[*MANY_BASE][1:])

    assert found.untested == ("ta", "fa", "tb", "fb", "tc", "fc", "td")
    assert found.settings == ({**MANY_BASE, "fd": 2 * MANY_BASE["fd"]},)
    assert found.describe_untested().endswith(f"because the search for other sizes ended after {MAX_RUNS} runs")
