"""Descriptions of changes to operators from one release to another."""

from __future__ import annotations

import pytest

from onnxgate.support.answers.operator_answers import OperatorChange
from onnxgate.support.answers.release_changes import list_changes, list_operators_by_label
from onnxgate.support.harvest import BuildDump, DumpedKernel, DumpedParameter, DumpedSchema, build_table
from onnxgate.support.operators import Operator, TableSource, build_implementations, get_implementation

FLOAT, DOUBLE, HALF = "tensor(float)", "tensor(double)", "tensor(float16)"
OPEN = 2**31 - 1


def kernel(name: str, start: int, end: int, *types: str) -> DumpedKernel:
    """Return a kernel with one type parameter."""
    return DumpedKernel(
        domain="", name=name, versions=(start, end), provider="CPUExecutionProvider", constraints={"T": types}
    )


def schema(since: int, *attributes: str, inputs_max: int = 2) -> DumpedSchema:
    """Return one version of the schema of `Add`."""
    return DumpedSchema(
        domain="",
        name="Add",
        since=since,
        deprecated=False,
        experimental=False,
        inputs=(DumpedParameter("a", "T", "Single", True), DumpedParameter("b", "T", "Optional", True))[:inputs_max],
        outputs=(DumpedParameter("c", "T", "Single", True),),
        constraints={"T": (FLOAT,)},
        attributes=dict.fromkeys(attributes, ("INT", True)),
        inputs_range=(1, inputs_max),
        outputs_range=(1, 1),
    )


def operators(*rows: DumpedKernel | DumpedSchema) -> dict[str, Operator]:
    """Return a release with these schemas and kernels."""
    schemas = tuple(row for row in rows if isinstance(row, DumpedSchema))
    kernels = tuple(row for row in rows if isinstance(row, DumpedKernel))
    dump = BuildDump(registry=True, release="1.0", commit="", platform="", schemas=schemas, kernels=kernels)
    table = build_table(dump, TableSource(release="1.0", wheel="", sha256=""))
    return list_operators_by_label(build_implementations(table, {})["1.0"])


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ([schema(7)], [schema(7)], []),
        ([schema(7)], [schema(7), schema(13)], [OperatorChange("changed", ("Add",), ("schema 13",))]),
        ([schema(7), schema(13)], [schema(7)], [OperatorChange("changed", ("Add",), ("no schema 13",))]),
        (
            [schema(7, "old")],
            [schema(7, "new", inputs_max=1)],
            [
                OperatorChange(
                    "changed",
                    ("Add",),
                    ("schema 7 with attribute +new: INT! -old: INT!, input -b: T?, inputs max 1 for 2",),
                )
            ],
        ),
        (
            [kernel("Add", 7, OPEN, FLOAT)],
            [kernel("Add", 7, 12, FLOAT), kernel("Add", 13, OPEN, FLOAT, HALF)],
            [OperatorChange("changed", ("Add",), ("kernel 7-12, 13+ (T +float16) for 7+",))],
        ),
        (
            [kernel("Add", 7, 7, FLOAT)],
            [kernel("Add", 7, 7, DOUBLE)],
            [OperatorChange("changed", ("Add",), ("kernel 7 with T +double -float",))],
        ),
        (
            [kernel("Add", 7, 12, FLOAT), kernel("Add", 13, 13, FLOAT), kernel("Add", 14, OPEN, FLOAT)],
            [kernel("Add", 7, 12, FLOAT, HALF), kernel("Add", 13, 13, DOUBLE), kernel("Add", 14, OPEN, FLOAT, HALF)],
            [
                OperatorChange(
                    "changed", ("Add",), ("kernel 7-12, 14+ with T +float16", "kernel 13 with T +double -float")
                )
            ],
        ),
        ([kernel("Add", 7, 7, FLOAT), schema(7)], [schema(7)], [OperatorChange("changed", ("Add",), ("no kernel 7",))]),
        (
            [schema(7)],
            [schema(7), kernel("Sub", 7, OPEN, FLOAT), kernel("Mul", 7, OPEN, FLOAT)],
            [OperatorChange("added", ("Mul", "Sub"), ("kernel 7+ (T +float)",))],
        ),
        ([schema(7), kernel("Sub", 1, 1, FLOAT)], [schema(7)], [OperatorChange("removed", ("Sub",), ("no kernel 1",))]),
        (
            [kernel("Add", 7, 7, FLOAT), kernel("Add", 7, 7, DOUBLE)],
            [kernel("Add", 7, 7, FLOAT, DOUBLE)],
            [OperatorChange("changed", ("Add",), ("the same types in different combinations",))],
        ),
    ],
)
def test_changes_are_described(
    older: list[DumpedKernel | DumpedSchema], newer: list[DumpedKernel | DumpedSchema], expected: list[OperatorChange]
) -> None:
    """Changes are described by version and type; operators with equal changes are listed together."""
    assert tuple(expected) == list_changes(operators(*older), operators(*newer))


@pytest.mark.parametrize(
    ("engine", "older", "newer", "label", "expected"),
    [
        (
            "openvino",
            "2025.0.0",
            "2025.4.1",
            "CenterCropPad",
            (
                "support of version 18 with Tind +int32",
                "support of version 18 also with other values than `0` or `1` in `axes`",
            ),
        ),
        (
            "openvino",
            "2025.0.0",
            "2025.4.1",
            "IsInf",
            (
                "support of version 20 with T1 +float8e4m3fn +float8e5m2",
                "no support of version 20 with `T1` = `float8e5m2` and `X` with several elements",
            ),
        ),
        ("tract", "0.22.4", "0.23.0", "GRU", ("support of version 3, 7, 14, 22 with T +double +float16",)),
        ("tract", "0.23.9", "0.22.4", "GRU", ("support of version 3, 7, 14, 22 with T -double -float16",)),
    ],
)
def test_types_that_tables_do_not_restrict(
    engine: str, older: str, newer: str, label: str, expected: tuple[str, ...]
) -> None:
    """A parameter without restriction accepts all types; it is not one that accepts none."""
    known = [get_implementation(release, engine) for release in (older, newer)]
    before, after = (
        {key: operator for key, operator in list_operators_by_label(it).items() if key == label} for it in known if it
    )

    assert (OperatorChange("changed", (label,), expected),) == list_changes(before, after, noun="support of version")


def test_types_that_only_constants_can_have() -> None:
    """tract up to 0.22.4 accepts MatMul of int64 values only if all are constant, and 0.23.0 never: nothing changed."""
    older, newer = (
        list_operators_by_label(it) for release in ("0.22.4", "0.23.0") if (it := get_implementation(release, "tract"))
    )
    labels = {label for change in list_changes(older, newer) for label in change.operators}

    assert "MatMul" not in labels


def test_operators_without_support_do_not_exist() -> None:
    """An engine that was probed has an operator from the first release that supports a version of it."""
    older, newer = (get_implementation(release, "tract") for release in ("0.22.4", "0.23.0"))
    assert older is not None
    assert newer is not None
    changes = list_changes(list_operators_by_label(older), list_operators_by_label(newer), noun="support of version")

    assert older.operator("ai.onnx", "Gelu") is not None
    expected = OperatorChange("added", ("Gelu",), ("support of version 20 (T +double +float +float16)",))
    assert expected in changes


@pytest.mark.parametrize(
    ("engine", "older", "newer", "label", "expected"),
    [
        ("openvino", "2026.2.1", "2026.3.0", "SequenceInsert", "support of version 11 also outside of `Loop`"),
        ("openvino", "2026.3.0", "2026.2.1", "SequenceInsert", "support of version 11 only in a `Loop`"),
        (
            "openvino",
            "2026.2.1",
            "2026.3.0",
            "ScatterND",
            "support of version 16, 18 also with `reduction` = `add`, `max`, `min` or `mul`",
        ),
        (
            "openvino",
            "2026.3.0",
            "2026.2.1",
            "ScatterND",
            "no support of version 16, 18 with `reduction` = `add`, `max`, `min` or `mul`",
        ),
        (
            "openvino",
            "2026.0.0",
            "2026.4.1",
            "com.microsoft.QLinearSoftmax",
            "support of version 1 also without `x_zero_point`",
        ),
        (
            "tract",
            "0.22.4",
            "0.23.0",
            "Pad",
            "support of version 18, 19, 21, 23, 24, 25 also with `axes`, except with `axes` that is not constant",
        ),
        (
            "tract",
            "0.22.4",
            "0.23.0",
            "Range",
            "support of version 11, 27 also with inputs that mix sizes and other integers",
        ),
    ],
)
def test_conditions_that_change(engine: str, older: str, newer: str, label: str, expected: str) -> None:
    """What a release refuses or accepts of an operator that both support can decide about an upgrade.

    Source: models with SequenceInsert, ScatterND and Range, loaded on these releases.
    """
    before, after = (
        list_operators_by_label(it) for release in (older, newer) if (it := get_implementation(release, engine))
    )
    changes = list_changes({label: before[label]}, {label: after[label]}, noun="support of version")

    assert (OperatorChange("changed", (label,), (expected,)),) == changes


def test_a_new_operator_names_only_what_all_its_nodes_require() -> None:
    """A list of all conditions of all new operators would hide the operators."""
    added = {}
    for engine, older, newer in (("openvino", "2025.1.0", "2025.2.0"), ("tract", "0.22.4", "0.23.0")):
        before, after = (
            list_operators_by_label(it) for release in (older, newer) if (it := get_implementation(release, engine))
        )
        changes = list_changes(before, after, noun="support of version")
        added |= {it.operators[0]: it.details[1:] for it in changes if it.kind == "added"}

    assert added["com.microsoft.QLinearSoftmax"] == ("support of version 1 only with `x_zero_point`",)
    assert added["Attention"] == ()
