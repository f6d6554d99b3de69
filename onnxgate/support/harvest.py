"""Create, join and cache tables of the operator schemas and kernels that ONNX Runtime builds report."""

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

from onnxgate.core.cache_entries import add_checksum, record_damage, verify_checksum, write_entry_file
from onnxgate.core.files import read_limited
from onnxgate.model.facts import canonical_domain
from onnxgate.support.limits import Limits
from onnxgate.support.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    ConditionRow,
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
"""Value that ONNX Runtime reports as the last operator version of a kernel if the version range is open-ended."""
MAX_HARVEST_BYTES = 64 * 2**20
"""Maximum size of cached support data; a larger file is damaged."""
HARVEST_VERSION = 1
"""Format version of cached support data. Data in a different format is ignored and collected again from the build."""


class HarvestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Support data of one ONNX Runtime build (limits, operator schemas and kernels) in the form stored in the cache."""

    version: int = HARVEST_VERSION
    limits: Limits
    table: Table | None  # of only this build; None if it reports no schemas and kernels


def make_harvest_record(dump: BuildDump, limits: Limits, source: TableSource) -> HarvestRecord:
    """Return the limits, schemas and kernels of one build in the form that is stored in the cache."""
    return HarvestRecord(limits=limits, table=build_table(dump, source) if dump.registry else None)


def encode_harvest(harvest: HarvestRecord) -> bytes:
    """Encode the support data of a build as compressed JSON, for the cache."""
    return zlib.compress(msgspec.json.encode(harvest), 9)


def decode_harvest(data: bytes) -> HarvestRecord | None:
    """Decode the cached support data of a build; return None if it is damaged or its format version is different."""
    try:
        content = zlib.decompress(data)
        harvest = msgspec.json.decode(content, type=HarvestRecord)
    except (zlib.error, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    is_exact = msgspec.json.encode(harvest) == content  # no field is unknown, missing or duplicate
    return harvest if is_exact and harvest.version == HARVEST_VERSION else None


def make_harvest_key(engine: str, release: str, build: str) -> str:
    """Return the name under which the support data of a build is cached.

    `build` is the sha256 of the wheel, or the identity of a custom build.
    """
    return "-".join(re.sub(r"[^\w.+]+", "_", part) for part in (engine, release, build[:12]))


def build_table(dump: BuildDump, source: TableSource, *, engine: str = "onnxruntime") -> Table:
    """Return the support table of one release, which contains its operator schemas and kernels."""
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
    """Join the support tables of different releases; the order of the tables does not matter.

    Raises:
        ValueError: there are no tables, their engines or platforms differ, or two tables contain the same release.
    """
    kinds = {(table.engine, table.platform) for table in tables}
    releases = [source.release for table in tables for source in table.sources]
    if len(kinds) != 1 or len(set(releases)) != len(releases):
        raise ValueError("tables to join must have the same engine and platform, and no release in common")
    return _combine_releases(tables, releases)


def select_releases(table: Table, releases: Iterable[str]) -> Table:
    """Return a copy of a support table that contains only the given releases."""
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
    """One formal input or output of an operator schema, as reported by an ONNX Runtime build."""

    name: str
    type: str
    option: Literal["Single", "Optional", "Variadic"]
    homogeneous: bool


class DumpedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an operator's schema, as reported by an ONNX Runtime build."""

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
    """One kernel of an operator, as reported by an ONNX Runtime build."""

    domain: str
    name: str
    versions: tuple[int, int]
    provider: str
    constraints: dict[str, tuple[str, ...]]


class BuildDump(msgspec.Struct, frozen=True, kw_only=True):
    """Operator schemas and kernels that an ONNX Runtime build reports.

    `registry` is false if the build cannot report them, as with releases before 1.16.
    """

    registry: bool
    release: str
    commit: str
    platform: str
    schemas: tuple[DumpedSchema, ...]
    kernels: tuple[DumpedKernel, ...]


def decode_dump(data: bytes) -> BuildDump:
    """Decode the JSON in which a build reports its operator schemas and kernels."""
    return msgspec.json.decode(data, type=BuildDump)


Row = SchemaRow | KernelRow | ConditionRow
RowType = TypeVar("RowType", SchemaRow, KernelRow, ConditionRow)
OperatorKey = tuple[str, str]
"""Domain and name of an operator."""


class TableBuilder:
    """A support table under construction. Each row is a schema or kernel with the releases that contain it.

    Sets of types are numbered in the order in which they are added.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._rows: dict[OperatorKey, dict[Row, int]] = defaultdict(dict)

    def constraints(self, constraints: Mapping[str, Iterable[str]]) -> tuple[tuple[str, int], ...]:
        """Return type constraints as pairs: the constraint's name, and the number of its set of accepted types."""
        return tuple((name, self._number(types)) for name, types in sorted(constraints.items()))

    def add(self, operator: OperatorKey, row: Row) -> None:
        """Add a schema or kernel of an operator; if an equal one was added before, only add the releases to it."""
        if row.releases:
            content = msgspec.structs.replace(row, releases=0)
            self._rows[operator][content] = self._rows[operator].get(content, 0) | row.releases

    def take(self, table: Table, places: Mapping[int, int]) -> None:
        """Add the rows of another table.

        `places` maps the bit of a release in the other table to its bit in this one; other releases are skipped.
        """
        numbers = [self._number(table.types[index] for index in types) for types in table.sets]
        for domain, operators in table.operators.items():
            for name, raw in operators.items():
                decoded = msgspec.json.decode(raw, type=OperatorRows)
                rows: tuple[Row, ...] = (*decoded.schemas, *decoded.kernels, *decoded.conditions)
                for row in rows:
                    moved = sum(1 << new for old, new in places.items() if row.releases >> old & 1)
                    self.add((domain, name), _renumber_row(row, numbers, moved))

    def table(self, engine: str, platform: str, sources: tuple[TableSource, ...]) -> Table:
        """Return the table of all added rows. It does not depend on the order in which they were added."""
        numbers = {number for rows in self._rows.values() for row in rows for number in _list_numbers(row)}
        used = sorted(types for types, number in self._numbers.items() if number in numbers)
        types = {name: place for place, name in enumerate(sorted({name for members in used for name in members}))}
        ranks = {self._numbers[members]: rank for rank, members in enumerate(used)}
        operators: dict[str, dict[str, msgspec.Raw]] = {}
        for domain, name in sorted(self._rows):
            rows = [_renumber_row(row, ranks, releases) for row, releases in self._rows[(domain, name)].items()]
            schemas = _sort_rows(row for row in rows if isinstance(row, SchemaRow))
            kernels = _sort_rows(row for row in rows if isinstance(row, KernelRow))
            conditions = _sort_rows(row for row in rows if isinstance(row, ConditionRow))
            encoded = msgspec.json.encode((schemas, kernels, conditions) if conditions else (schemas, kernels))
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


def _list_numbers(row: Row) -> tuple[int, ...]:
    """Return the numbers of the sets of types in a row."""
    return () if isinstance(row, ConditionRow) else tuple(number for _, number in row.constraints)


def _renumber_row(row: Row, numbers: Sequence[int] | Mapping[int, int], releases: int) -> Row:
    if isinstance(row, ConditionRow):
        return msgspec.structs.replace(row, releases=releases)
    constraints = tuple((name, numbers[index]) for name, index in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)


def _sort_rows(rows: Iterable[RowType]) -> tuple[RowType, ...]:
    """Sort schemas or kernels, first by version, so that equal tables are encoded as identical bytes."""
    return tuple(sorted(rows, key=msgspec.to_builtins))


class BuildSupport(msgspec.Struct, frozen=True):
    """Version limits, operator schemas and kernels of one ONNX Runtime build."""

    limits: Limits
    implementation: Implementation | None  # None if the build has no kernel registry to read
    sha256: str = ""  # of the cached harvest


class HarvestCache(msgspec.Struct):
    """Cache folder with one file of support data per ONNX Runtime build. Damaged files are ignored.

    `make_harvest_key` returns the name of a file without its extension.
    """

    folder: Path
    _loaded: dict[str, BuildSupport] = msgspec.field(default_factory=dict)

    def get(self, key: str) -> BuildSupport | None:
        """Return the cached support data of a build; None if it is not cached or damaged."""
        if key not in self._loaded:
            try:
                content = read_limited(self._path(key), MAX_HARVEST_BYTES)
            except FileNotFoundError:
                return None
            except OSError:
                content = b""
            verified = verify_checksum(key, content)
            harvest = decode_harvest(verified) if verified is not None else None
            support = _validate_harvest(harvest, key) if harvest is not None else None
            if support is None:
                record_damage(str(self._path(key)))
                return None
            self._loaded[key] = _add_digest(support, content)
        return self._loaded[key]

    def put(self, key: str, harvest: HarvestRecord) -> BuildSupport:
        """Store the support data of a build in the cache, and return it.

        The file is replaced atomically, because other processes may read and write it.

        Raises:
            OSError: the file cannot be written; in this process, `get` still returns the data.
        """
        content = add_checksum(key, encode_harvest(harvest))
        self._loaded[key] = _add_digest(_make_build_support(harvest), content)
        write_entry_file(self._path(key), content)
        return self._loaded[key]

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json.z"


def _validate_harvest(harvest: HarvestRecord, key: str) -> BuildSupport | None:
    """Return support data read from the cache; None if it is damaged or belongs to a different build than `key`."""
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
