"""Tables built from dumps keep all data and do not depend on order."""

from __future__ import annotations

from random import Random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.support import harvest
from onnxgate.support.harvest import BuildDump, DumpedKernel, DumpedParameter, DumpedSchema
from onnxgate.support.limits import ExternalData, Limits
from onnxgate.support.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    Operator,
    Table,
    TableSource,
    build_implementations,
    encode_table,
)

Row = TypeVar("Row", DumpedSchema, DumpedKernel)

LINUX = "linux x86_64"
OPTIONS = {"Single": SINGLE, "Optional": OPTIONAL, "Variadic": VARIADIC}
LIMITS = Limits(
    ir=10,
    opsets={"ai.onnx": 21},
    dev_opsets={"ai.onnx": 22},
    external_data=ExternalData(outside=False, link=False, linked_model=True, absolute=False),
)

# Small sets, so that releases share most of them.
names = st.sampled_from(["Add", "Cast", "Größe"])
domains = st.sampled_from(["", "com.microsoft", "my.own"])
types = st.lists(st.sampled_from(["tensor(float)", "tensor(int64)", "seq(tensor(float))"]), max_size=3).map(tuple)
constraints = st.dictionaries(st.sampled_from(["T", "T1", "X"]), types, max_size=2)
counts = st.tuples(st.integers(0, 2), st.integers(2, 2**31 - 1))
formals = st.lists(
    st.builds(
        DumpedParameter,
        name=st.sampled_from(["x", "y"]),
        type=st.sampled_from(["T", "tensor(int64)"]),
        option=st.sampled_from(sorted(OPTIONS)),
        homogeneous=st.booleans(),
    ),
    max_size=2,
).map(tuple)
schemas = st.builds(
    DumpedSchema,
    domain=domains,
    name=names,
    since=st.integers(1, 3),
    deprecated=st.booleans(),
    experimental=st.booleans(),
    inputs=formals,
    outputs=formals,
    constraints=constraints,
    attributes=st.dictionaries(
        st.sampled_from(["a", "b"]), st.tuples(st.sampled_from(["INT", "FLOATS"]), st.booleans())
    ),
    inputs_range=counts,
    outputs_range=counts,
)
kernels = st.builds(
    DumpedKernel,
    domain=domains,
    name=names,
    versions=st.tuples(st.integers(1, 3), st.sampled_from([3, 4, 2**31 - 1])),
    provider=st.sampled_from(["CPUExecutionProvider", "CUDAExecutionProvider"]),
    constraints=constraints,
)
dumps = st.builds(
    BuildDump,
    registry=st.just(True),
    release=st.just(""),
    commit=st.sampled_from(["", "6af1a93"]),
    platform=st.just(LINUX),
    schemas=st.lists(schemas, max_size=4, unique_by=lambda each: (each.domain, each.name, each.since)).map(tuple),
    kernels=st.lists(kernels, max_size=4, unique_by=msgspec.json.encode).map(tuple),
)
releases = st.dictionaries(st.sampled_from(["1.9.2", "1.16.0", "1.16.10", "1.31.1"]), dumps, min_size=1)


def source(release: str) -> TableSource:
    """Return the source of a release."""
    return TableSource(release=release, wheel=f"onnxruntime-{release}.whl", sha256="0" * 64, commit="abc")


def tables(said: dict[str, BuildDump]) -> list[Table]:
    """Return one source per release."""
    return [harvest.build_table(dump, source(release)) for release, dump in said.items()]


def as_decoded_table(dump: BuildDump) -> tuple[set[object], set[object]]:
    """Return the content of a dump in the form of a decoded table."""
    return {_decode_schema(schema) for schema in dump.schemas}, {_decode_kernel(kernel) for kernel in dump.kernels}


def _decode_schema(each: DumpedSchema) -> object:
    facts = (each.deprecated, each.experimental, *each.inputs_range, *each.outputs_range)
    inputs, outputs = (tuple(map(_decode_formal, formals)) for formals in (each.inputs, each.outputs))
    attributes = frozenset((name, *about) for name, about in each.attributes.items())
    return each.domain or "ai.onnx", each.name, each.since, facts, inputs, outputs, _sets(each.constraints), attributes


def _decode_formal(each: DumpedParameter) -> object:
    mixed = each.option == "Variadic" and not each.homogeneous
    return each.name, each.type, MIXED if mixed else OPTIONS[each.option]


def _decode_kernel(each: DumpedKernel) -> object:
    start, end = each.versions
    end = 0 if end == 2**31 - 1 else end
    return each.domain or "ai.onnx", each.name, start, end, each.provider, _sets(each.constraints)


def as_read(table: Table, release: str) -> tuple[set[object], set[object]]:
    """Return the content of an implementation in the same form."""
    actual = build_implementations(table, {})[release]
    pairs = [(domain, name) for domain, each in table.operators.items() for name in each]
    operators = [operator for pair in pairs if (operator := actual.operator(*pair))]
    return (
        {row for each in operators for row in _schemas_read(each)},
        {row for each in operators for row in _kernels_read(each)},
    )


def _schemas_read(operator: Operator) -> list[object]:
    return [
        (
            *(operator.domain, operator.name, schema.since),
            (
                *(schema.deprecated, schema.experimental),
                *(schema.inputs_min, schema.inputs_max, schema.outputs_min, schema.outputs_max),
            ),
            tuple((formal.name, formal.type, formal.option) for formal in schema.inputs),
            tuple((formal.name, formal.type, formal.option) for formal in schema.outputs),
            _sets(schema.constraints),
            frozenset((name, *about) for name, about in schema.attributes.items()),
        )
        for schema in operator.schemas
    ]


def _kernels_read(operator: Operator) -> list[object]:
    return [
        (operator.domain, operator.name, kernel.start, kernel.end, kernel.provider, _sets(kernel.constraints))
        for kernel in operator.kernels
    ]


def _sets(constraints: object) -> object:
    assert isinstance(constraints, dict)
    return frozenset((name, frozenset(types)) for name, types in constraints.items())


@given(releases)
def test_joined_table_round_trip(said: dict[str, BuildDump]) -> None:
    """Each release is equal after encoding and decoding."""
    table = msgspec.json.decode(msgspec.json.encode(harvest.join_tables(tables(said))), type=Table)

    assert {release: as_decoded_table(dump) for release, dump in said.items()} == {
        release: as_read(table, release) for release in said
    }


@given(releases, st.randoms(use_true_random=False))
def test_order_makes_no_difference(said: dict[str, BuildDump], random: Random) -> None:
    """Neither the order of releases nor the order within a dump matters."""
    shuffled = list(tables({release: _shuffled(dump, random) for release, dump in said.items()}))
    random.shuffle(shuffled)

    assert encode_table(harvest.join_tables(tables(said))) == encode_table(harvest.join_tables(shuffled))


def _shuffled(dump: BuildDump, random: Random) -> BuildDump:
    rows = {
        name: random.sample(each, len(each)) for name, each in (("schemas", dump.schemas), ("kernels", dump.kernels))
    }
    return msgspec.structs.replace(
        dump, **{name: tuple(_with_shuffled_types(row, random) for row in each) for name, each in rows.items()}
    )


def _with_shuffled_types(row: Row, random: Random) -> Row:
    types = {name: tuple(random.sample(each, len(each))) for name, each in row.constraints.items()}
    return msgspec.structs.replace(row, constraints=dict(random.sample(list(types.items()), len(types))))


@given(releases)
def test_joining_and_splitting_are_inverse(said: dict[str, BuildDump]) -> None:
    """A release selected from a joined table equals its own table; joining it again changes nothing."""
    each = tables(said)
    joined = harvest.join_tables(each)
    first = each[0].sources[0].release
    others = [source.release for source in joined.sources if source.release != first]

    assert [encode_table(table) for table in each] == [
        encode_table(harvest.select_releases(joined, [source.release for source in table.sources])) for table in each
    ]
    assert encode_table(joined) == encode_table(harvest.join_tables([harvest.select_releases(joined, others), each[0]]))


def test_releases_ascend_by_number() -> None:
    """Releases are ordered numerically: 1.16.10 is newer than 1.16.9 and 1.9.2."""
    empty = BuildDump(registry=True, release="", commit="", platform=LINUX, schemas=(), kernels=())
    joined = harvest.join_tables(tables(dict.fromkeys(["1.16.10", "1.9.2", "1.16.9"], empty)))

    assert ["1.9.2", "1.16.9", "1.16.10"] == [source.release for source in joined.sources]


@pytest.mark.parametrize("problem", ["the same release", "another platform", "nothing"])
def test_invalid_joins_are_rejected(problem: str) -> None:
    """A table has each release once, for one platform."""
    dump = BuildDump(registry=True, release="", commit="", platform=LINUX, schemas=(), kernels=())
    other = msgspec.structs.replace(dump, platform="linux aarch64")
    pairs = {
        "the same release": [harvest.build_table(dump, source("1.16.0"))] * 2,
        "another platform": [
            harvest.build_table(dump, source("1.16.0")),
            harvest.build_table(other, source("1.16.1")),
        ],
        "nothing": [],
    }

    with pytest.raises(ValueError, match="tables to join"):
        harvest.join_tables(pairs[problem])


@given(dumps)
def test_stored_harvest_round_trip(dump: BuildDump) -> None:
    """Limits and rows are encoded reproducibly."""
    kept = harvest.encode_harvest(harvest.make_harvest_record(dump, LIMITS, source("1.31.1")))
    actual = harvest.decode_harvest(kept)

    assert actual is not None
    assert actual.table is not None
    assert (LIMITS, as_decoded_table(dump)) == (actual.limits, as_read(actual.table, "1.31.1"))
    assert kept == harvest.encode_harvest(actual)


def test_build_without_a_registry_has_only_limits() -> None:
    """A build without a registry is not treated as one without operators."""
    dump = BuildDump(registry=False, release="1.15.1", commit="", platform=LINUX, schemas=(), kernels=())
    actual = harvest.decode_harvest(harvest.encode_harvest(harvest.make_harvest_record(dump, LIMITS, source("1.15.1"))))

    assert actual == harvest.HarvestRecord(limits=LIMITS, table=None)


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "newer"])
def test_damaged_harvest_is_ignored(damage: str) -> None:
    """A harvest of another version is ignored, so that the build is harvested again."""
    whole = harvest.HarvestRecord(limits=LIMITS, table=None)
    kept = harvest.encode_harvest(whole)
    newer = harvest.encode_harvest(msgspec.structs.replace(whole, version=harvest.HARVEST_VERSION + 1))
    data = {"cut": kept[:-1], "empty": b"", "noise": b"{}" + kept, "newer": newer}[damage]

    assert harvest.decode_harvest(data) is None
    assert harvest.decode_harvest(kept) == whole


def test_stored_harvest_has_a_valid_file_name() -> None:
    """File names are valid for any name of a custom build."""
    names = [
        harvest.make_harvest_key("onnxruntime", "1.31.1", "5752bd508126ae7c4989"),
        harvest.make_harvest_key("ort", "1.31.1+cu/12", "../x"),
    ]

    assert ["onnxruntime-1.31.1-5752bd508126", "ort-1.31.1+cu_12-.._x"] == names
