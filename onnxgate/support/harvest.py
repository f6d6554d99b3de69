"""Create support tables from the dumps of ONNX Runtime builds, join tables, and cache harvested builds."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from packaging.version import Version

from onnxgate.core.files import replace_atomically
from onnxgate.model.facts import canonical_domain
from onnxgate.support.limits import Limits
from onnxgate.support.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    FormalParameter,
    Implementation,
    KernelRow,
    OperatorRows,
    SchemaRow,
    Table,
    TableSource,
    build_implementations,
)

PARAMETER_OPTIONS = {"Single": SINGLE, "Optional": OPTIONAL, "Variadic": VARIADIC}
OPEN_END = 2**31 - 1
"""Number with which ONNX Runtime marks the end of an open-ended version range."""
HARVEST_VERSION = 1
"""Version of the cache format; builds cached in a different version are harvested again."""


class HarvestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Support data harvested from one build, as it is cached."""

    version: int = HARVEST_VERSION
    limits: Limits
    table: Table | None  # of only this build; None if it reports no schemas and kernels


def make_harvest_record(dump: BuildDump, limits: Limits, source: TableSource) -> HarvestRecord:
    """Return the support data of one build for the cache, from its reported schemas and kernels and its limits."""
    return HarvestRecord(limits=limits, table=build_table(dump, source) if dump.registry else None)


def encode_harvest(harvest: HarvestRecord) -> bytes:
    """Encode a harvest for the cache."""
    return zlib.compress(msgspec.json.encode(harvest), 9)


def decode_harvest(data: bytes) -> HarvestRecord | None:
    """Decode a cached harvest; None if it is damaged or has a different version."""
    try:
        harvest = msgspec.json.decode(zlib.decompress(data), type=HarvestRecord)
    except (zlib.error, msgspec.MsgspecError, UnicodeError):
        return None
    return harvest if harvest.version == HARVEST_VERSION else None


def make_harvest_key(engine: str, release: str, build: str) -> str:
    """Return the name of a cached harvest; `build` is the wheel's sha256 or the identity of a custom build."""
    return "-".join(re.sub(r"[^\w.+]+", "_", part) for part in (engine, release, build[:12]))


def build_table(dump: BuildDump, source: TableSource, *, engine: str = "onnxruntime") -> Table:
    """Return the table of one release."""
    rows = TableBuilder()
    for schema in dump.schemas:
        row = SchemaRow(
            schema.since,
            schema.deprecated,
            tuple(map(_make_parameter, schema.inputs)),
            tuple(map(_make_parameter, schema.outputs)),
            rows.constraints(schema.constraints),
            tuple((name, kind, required) for name, (kind, required) in sorted(schema.attributes.items())),
            *schema.inputs_range,
            *schema.outputs_range,
            schema.experimental,
            1,
        )
        rows.add((canonical_domain(schema.domain), schema.name), row)
    for kernel in dump.kernels:
        start, end = kernel.versions
        constraints = rows.constraints(kernel.constraints)
        kernel_row = KernelRow(start, 0 if end == OPEN_END else end, kernel.provider, constraints, 1)
        rows.add((canonical_domain(kernel.domain), kernel.name), kernel_row)
    return rows.table(engine, dump.platform, (source,))


def _make_parameter(formal: DumpedParameter) -> FormalParameter:
    mixed = formal.option == "Variadic" and not formal.homogeneous
    return FormalParameter(formal.name, formal.type, MIXED if mixed else PARAMETER_OPTIONS[formal.option])


def join_tables(tables: Sequence[Table]) -> Table:
    """Join tables of different releases; their order does not matter.

    Raises:
        ValueError: there are no tables, their engines or platforms differ, or two tables contain the same release.
    """
    kinds = {(table.engine, table.platform) for table in tables}
    releases = [source.release for table in tables for source in table.sources]
    if len(kinds) != 1 or len(set(releases)) != len(releases):
        raise ValueError("tables to join must have the same engine and platform, and no release in common")
    return _combine_releases(tables, releases)


def select_releases(table: Table, releases: Iterable[str]) -> Table:
    """Return a copy of the table that contains only these releases."""
    return _combine_releases([table], set(releases))


def _combine_releases(tables: Sequence[Table], releases: Iterable[str]) -> Table:
    places = {release: bit for bit, release in enumerate(sorted(releases, key=Version))}
    sources = {source.release: source for table in tables for source in table.sources}
    rows = TableBuilder()
    for table in tables:
        own = enumerate(source.release for source in table.sources)
        rows.take(table, {bit: places[release] for bit, release in own if release in places})
    return rows.table(tables[0].engine, tables[0].platform, tuple(sources[release] for release in places))


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
    """Schemas and kernels that a build reports. `registry` is false for releases before 1.16, which report none."""

    registry: bool
    release: str
    commit: str
    platform: str
    schemas: tuple[DumpedSchema, ...]
    kernels: tuple[DumpedKernel, ...]


def decode_dump(data: bytes) -> BuildDump:
    """Decode a dump."""
    return msgspec.json.decode(data, type=BuildDump)


Row = SchemaRow | KernelRow
RowType = TypeVar("RowType", SchemaRow, KernelRow)
OperatorKey = tuple[str, str]
"""Domain and name."""


class TableBuilder:
    """A table under construction: rows, and the releases that each row applies to.

    Sets of types are numbered in order of insertion.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._rows: dict[OperatorKey, dict[Row, int]] = defaultdict(dict)

    def constraints(self, constraints: Mapping[str, Iterable[str]]) -> tuple[tuple[str, int], ...]:
        """Return the type constraints of a row, with each type set replaced by its number."""
        return tuple((name, self._number(types)) for name, types in sorted(constraints.items()))

    def add(self, operator: OperatorKey, row: Row) -> None:
        """Add a schema or kernel; if it was added before, add only its releases."""
        if row.releases:
            content = msgspec.structs.replace(row, releases=0)
            self._rows[operator][content] = self._rows[operator].get(content, 0) | row.releases

    def take(self, table: Table, places: Mapping[int, int]) -> None:
        """Add rows of another table.

        `places` maps the release bits of that table to those of this one; releases without an entry are skipped.
        """
        numbers = [self._number(table.types[index] for index in types) for types in table.sets]
        for domain, operators in table.operators.items():
            for name, raw in operators.items():
                decoded = msgspec.json.decode(raw, type=OperatorRows)
                rows: tuple[Row, ...] = (*decoded.schemas, *decoded.kernels)
                for row in rows:
                    moved = sum(1 << new for old, new in places.items() if row.releases >> old & 1)
                    self.add((domain, name), _renumber_row(row, numbers, moved))

    def table(self, engine: str, platform: str, sources: tuple[TableSource, ...]) -> Table:
        """Return a table of all rows; the order in which they were added does not matter."""
        numbers = {number for rows in self._rows.values() for row in rows for _, number in row.constraints}
        used = sorted(types for types, number in self._numbers.items() if number in numbers)
        types = {name: place for place, name in enumerate(sorted({name for members in used for name in members}))}
        ranks = {self._numbers[members]: rank for rank, members in enumerate(used)}
        operators: dict[str, dict[str, msgspec.Raw]] = {}
        for domain, name in sorted(self._rows):
            rows = [_renumber_row(row, ranks, releases) for row, releases in self._rows[(domain, name)].items()]
            schemas = _sort_rows(row for row in rows if isinstance(row, SchemaRow))
            kernels = _sort_rows(row for row in rows if isinstance(row, KernelRow))
            encoded = msgspec.json.encode(OperatorRows(schemas, kernels))
            operators.setdefault(domain, {})[name] = msgspec.Raw(encoded)
        return Table(
            engine=engine,
            platform=platform,
            sources=sources,
            types=tuple(types),
            sets=tuple(tuple(types[name] for name in members) for members in used),
            operators=operators,
        )

    def _number(self, types: Iterable[str]) -> int:
        return self._numbers.setdefault(tuple(sorted(set(types))), len(self._numbers))


def _renumber_row(row: Row, numbers: Sequence[int] | Mapping[int, int], releases: int) -> Row:
    constraints = tuple((name, numbers[index]) for name, index in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)


def _sort_rows(rows: Iterable[RowType]) -> tuple[RowType, ...]:
    """Sort rows, first by version, so that equal tables are stored as equal bytes."""
    return tuple(sorted(rows, key=msgspec.to_builtins))


class BuildSupport(msgspec.Struct, frozen=True):
    """Limits, schemas and kernels of one build."""

    limits: Limits
    implementation: Implementation | None  # None if the build has no kernel registry to read
    sha256: str = ""  # of the cached harvest


class HarvestCache(msgspec.Struct):
    """Folder with one file per build, named by `make_harvest_key`. Damaged files are ignored."""

    folder: Path
    _loaded: dict[str, BuildSupport] = msgspec.field(default_factory=dict)

    def get(self, key: str) -> BuildSupport | None:
        """Return the support data of a build; None if it is not cached."""
        if key not in self._loaded:
            try:
                content = self._path(key).read_bytes()
            except OSError:
                return None
            harvest = decode_harvest(content)
            support = _validate_harvest(harvest, key) if harvest is not None else None
            if support is None:
                return None
            self._loaded[key] = _add_digest(support, content)
        return self._loaded[key]

    def put(self, key: str, harvest: HarvestRecord) -> BuildSupport:
        """Store a harvest atomically: other processes may read and write the same file.

        Raises:
            OSError: the file cannot be written; this process can still use the harvest.
        """
        content = encode_harvest(harvest)
        self._loaded[key] = _add_digest(_make_build_support(harvest), content)
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as part:
            part.write_bytes(content)
        return self._loaded[key]

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json.z"


def _validate_harvest(harvest: HarvestRecord, key: str) -> BuildSupport | None:
    """Return the support data in a harvest; None if it is damaged or belongs to a different build than `key`."""
    if harvest.table is not None:
        builds = [make_harvest_key("", source.release, source.sha256) for source in harvest.table.sources]
        if [key.endswith(build) for build in builds] != [True]:
            return None
    try:
        support = _make_build_support(harvest)
        build = support.implementation
        return support if build is None or all(map(build.operators, build.domains())) else None
    except (IndexError, msgspec.MsgspecError):
        return None


def _add_digest(support: BuildSupport, content: bytes) -> BuildSupport:
    return msgspec.structs.replace(support, sha256=hashlib.sha256(content).hexdigest())


def _make_build_support(harvest: HarvestRecord) -> BuildSupport:
    if harvest.table is None:
        return BuildSupport(harvest.limits, None)
    (source,) = harvest.table.sources
    implementations = build_implementations(harvest.table, {source.release: harvest.limits.opsets})
    return BuildSupport(harvest.limits, implementations[source.release])
