"""From what builds say of themselves to the table: a release's dump to rows, and rows of several releases into one."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec
from packaging.version import Version

from onnxgate.support.tables.limits import Limits
from onnxgate.support.tables.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    FormalParameter,
    KernelRow,
    OperatorRows,
    SchemaRow,
    Table,
    TableSource,
)

PARAMETER_OPTIONS = {"Single": SINGLE, "Optional": OPTIONAL, "Variadic": VARIADIC}
OPEN_END = 2**31 - 1
"""How ONNX Runtime says that a range of versions has no end."""
HARVEST_VERSION = 1
"""Counts changes of what a cache keeps; what is of another version is harvested again."""


class HarvestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one build, as a cache keeps it."""

    version: int = HARVEST_VERSION
    limits: Limits
    table: Table | None  # of this build alone; None where it does not say


def make_harvest_record(dump: BuildDump, limits: Limits, source: TableSource) -> HarvestRecord:
    """One build's own dump and limits, made what the shipped table is."""
    return HarvestRecord(limits=limits, table=build_table(dump, source) if dump.registry else None)


def encode_harvest(harvest: HarvestRecord) -> bytes:
    """A harvest as it is kept."""
    return zlib.compress(msgspec.json.encode(harvest), 9)


def decode_harvest(data: bytes) -> HarvestRecord | None:
    """A kept harvest; None where it is damaged, or of another version."""
    try:
        harvest = msgspec.json.decode(zlib.decompress(data), type=HarvestRecord)
    except (zlib.error, msgspec.MsgspecError, UnicodeError):
        return None
    return harvest if harvest.version == HARVEST_VERSION else None


def make_harvest_key(engine: str, release: str, build: str) -> str:
    """The name under which a harvest is kept; `build` is its wheel's sha256, or what tells a build of one's own."""
    return "-".join(re.sub(r"[^\w.+]+", "_", part) for part in (engine, release, build[:12]))


def build_table(dump: BuildDump, source: TableSource, *, engine: str = "onnxruntime") -> Table:
    """The table of one release."""
    rows = TableBuilder()
    for schema in dump.schemas:
        rows.add_schema((schema.domain or "ai.onnx", schema.name), _make_schema_row(schema, rows))
    for kernel in dump.kernels:
        rows.add_kernel((kernel.domain or "ai.onnx", kernel.name), _make_kernel_row(kernel, rows))
    return rows.table(engine, dump.platform, (source,))


def join_tables(tables: Sequence[Table]) -> Table:
    """
    One table of the releases of several, whatever their order.

    Raises:
        ValueError: there are none, they are of different engines or platforms, or have a release in common.
    """
    kinds = {(table.engine, table.platform) for table in tables}
    releases = [source.release for table in tables for source in table.sources]
    if len(kinds) != 1 or len(set(releases)) != len(releases):
        raise ValueError("tables of one engine and one platform can be joined, each with releases of its own")
    return _combine_releases(tables, releases)


def select_releases(table: Table, releases: Iterable[str]) -> Table:
    """The table without all other releases."""
    return _combine_releases([table], set(releases))


def _combine_releases(tables: Sequence[Table], releases: Iterable[str]) -> Table:
    places = {release: bit for bit, release in enumerate(sorted(releases, key=Version))}
    sources = {source.release: source for table in tables for source in table.sources}
    rows = TableBuilder()
    for table in tables:
        own = enumerate(source.release for source in table.sources)
        rows.take(table, {bit: places[release] for bit, release in own if release in places})
    return rows.table(tables[0].engine, tables[0].platform, tuple(sources[release] for release in places))


def _make_schema_row(schema: DumpedSchema, rows: TableBuilder) -> SchemaRow:
    return SchemaRow(
        schema.since,
        schema.deprecated,
        tuple(_make_parameter(each) for each in schema.inputs),
        tuple(_make_parameter(output) for output in schema.outputs),
        rows.constraints(schema.constraints),
        tuple((name, kind, required) for name, (kind, required) in sorted(schema.attributes.items())),
        *schema.inputs_range,
        *schema.outputs_range,
        schema.experimental,
        1,
    )


def _make_parameter(formal: DumpedParameter) -> FormalParameter:
    mixed = formal.option == "Variadic" and not formal.homogeneous
    return FormalParameter(formal.name, formal.type, MIXED if mixed else PARAMETER_OPTIONS[formal.option])


def _make_kernel_row(kernel: DumpedKernel, rows: TableBuilder) -> KernelRow:
    start, end = kernel.versions
    return KernelRow(start, 0 if end == OPEN_END else end, kernel.provider, rows.constraints(kernel.constraints), 1)


class DumpedParameter(msgspec.Struct, frozen=True, array_like=True):
    """One formal parameter."""

    name: str
    type: str
    option: Literal["Single", "Optional", "Variadic"]
    homogeneous: bool


class DumpedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one operator's schema."""

    domain: str  # "" for the default one
    name: str
    since: int
    deprecated: bool
    experimental: bool
    inputs: tuple[DumpedParameter, ...]
    outputs: tuple[DumpedParameter, ...]
    constraints: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, bool]]  # name -> type ("INT"), required
    inputs_range: tuple[int, int]
    outputs_range: tuple[int, int]


class DumpedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One registered kernel."""

    domain: str
    name: str
    versions: tuple[int, int]
    provider: str
    constraints: dict[str, tuple[str, ...]]


class BuildDump(msgspec.Struct, frozen=True, kw_only=True):
    """All that a build says of itself. Releases before 1.16 have no `registry` to read."""

    registry: bool
    release: str
    commit: str
    platform: str
    schemas: tuple[DumpedSchema, ...]
    kernels: tuple[DumpedKernel, ...]


def decode_dump(data: bytes) -> BuildDump:
    """A dump as it was written."""
    return msgspec.json.decode(data, type=BuildDump)


Row = TypeVar("Row", SchemaRow, KernelRow)
OperatorKey = tuple[str, str]
"""Domain and name."""


class TableBuilder:
    """Collects rows without their releases, and the releases of each. Sets of types are numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._schemas: dict[OperatorKey, dict[SchemaRow, int]] = defaultdict(dict)
        self._kernels: dict[OperatorKey, dict[KernelRow, int]] = defaultdict(dict)

    def constraints(self, given: Mapping[str, Iterable[str]]) -> tuple[tuple[str, int], ...]:
        """What a row says of its types."""
        return tuple((name, self._number(types)) for name, types in sorted(given.items()))

    def add_schema(self, operator: OperatorKey, row: SchemaRow) -> None:
        """Say that the row's releases have this schema."""
        _add_row(self._schemas[operator], row)

    def add_kernel(self, operator: OperatorKey, row: KernelRow) -> None:
        """Say that the row's releases have this kernel."""
        _add_row(self._kernels[operator], row)

    def take(self, table: Table, places: Mapping[int, int]) -> None:
        """The rows of some releases of a table: bit there -> bit here."""
        numbers = [self._number(table.types[index] for index in each) for each in table.sets]
        for domain, operators in table.operators.items():
            for name, raw in operators.items():
                rows = msgspec.json.decode(raw, type=OperatorRows)
                for schema in rows.schemas:
                    self.add_schema((domain, name), _renumber_row(schema, numbers, places))
                for kernel in rows.kernels:
                    self.add_kernel((domain, name), _renumber_row(kernel, numbers, places))

    def table(self, engine: str, platform: str, sources: tuple[TableSource, ...]) -> Table:
        """The one table that these rows make, in whatever order they came."""
        used = sorted(types for types, number in self._numbers.items() if number in self._used())
        types = {name: place for place, name in enumerate(sorted({name for each in used for name in each}))}
        ranks = {self._numbers[each]: rank for rank, each in enumerate(used)}
        return Table(
            engine=engine,
            platform=platform,
            sources=sources,
            types=tuple(types),
            sets=tuple(tuple(types[name] for name in each) for each in used),
            operators=self._operators(ranks),
        )

    def _number(self, types: Iterable[str]) -> int:
        return self._numbers.setdefault(tuple(sorted(set(types))), len(self._numbers))

    def _used(self) -> frozenset[int]:
        rows: list[SchemaRow | KernelRow] = [row for schema in self._schemas.values() for row in schema]
        rows += [row for kernel in self._kernels.values() for row in kernel]
        return frozenset(number for row in rows for _, number in row.constraints)

    def _operators(self, ranks: Mapping[int, int]) -> dict[str, dict[str, msgspec.Raw]]:
        made: dict[str, dict[str, msgspec.Raw]] = {}
        for domain, name in sorted(self._schemas.keys() | self._kernels.keys()):
            schemas = _sort_rows(self._schemas.get((domain, name), {}), ranks)
            kernels = _sort_rows(self._kernels.get((domain, name), {}), ranks)
            if schemas or kernels:  # `take` asks for operators that the releases do not have
                made.setdefault(domain, {})[name] = msgspec.Raw(msgspec.json.encode(OperatorRows(schemas, kernels)))
        return made


def _add_row(rows: dict[Row, int], row: Row) -> None:
    if row.releases:
        bare = msgspec.structs.replace(row, releases=0)
        rows[bare] = rows.get(bare, 0) | row.releases


def _renumber_row(row: Row, numbers: list[int], places: Mapping[int, int]) -> Row:
    releases = sum(1 << here for there, here in places.items() if row.releases >> there & 1)
    constraints = tuple((name, numbers[index]) for name, index in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)


def _sort_rows(rows: Mapping[Row, int], ranks: Mapping[int, int]) -> tuple[Row, ...]:
    """By version first; equal rows make equal bytes."""
    made = [_rank_row(row, ranks, releases) for row, releases in rows.items()]
    return tuple(sorted(made, key=msgspec.to_builtins))


def _rank_row(row: Row, ranks: Mapping[int, int], releases: int) -> Row:
    constraints = tuple((name, ranks[number]) for name, number in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)
