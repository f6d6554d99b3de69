"""From what builds say of themselves to the table: a release's dump to rows, and rows of several releases into one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence

import msgspec
from packaging.version import Version

from onnxgate.support.dump import Dump, DumpedFormal, DumpedKernel, DumpedSchema
from onnxgate.support.limits import Limits
from onnxgate.support.rows import Rows
from onnxgate.support.table import MIXED, OPTIONAL, SINGLE, VARIADIC, Formal, KernelRow, SchemaRow, Source, Table

OPTIONS = {"Single": SINGLE, "Optional": OPTIONAL, "Variadic": VARIADIC}
OPEN = 2**31 - 1
"""How ONNX Runtime says that a range of versions has no end."""
VERSION = 1
"""Counts changes of what a cache keeps; what is of another version is harvested again."""


class Harvest(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one build, as a cache keeps it."""

    version: int = VERSION
    limits: Limits
    table: Table | None  # of this build alone; None where it does not say


def harvest_of(dump: Dump, limits: Limits, source: Source) -> Harvest:
    """One build's own dump and limits, made what the shipped table is."""
    return Harvest(limits=limits, table=table_of(dump, source) if dump.registry else None)


def encode_harvest(harvest: Harvest) -> bytes:
    """A harvest as it is kept."""
    return zlib.compress(msgspec.json.encode(harvest), 9)


def decode_harvest(data: bytes) -> Harvest | None:
    """A kept harvest; None where it is damaged, or of another version."""
    try:
        harvest = msgspec.json.decode(zlib.decompress(data), type=Harvest)
    except (zlib.error, msgspec.MsgspecError, UnicodeError):
        return None
    return harvest if harvest.version == VERSION else None


def key(engine: str, release: str, build: str) -> str:
    """The name under which a harvest is kept; `build` is its wheel's sha256, or what tells a build of one's own."""
    return "-".join(re.sub(r"[^\w.+]+", "_", part) for part in (engine, release, build[:12]))


def table_of(dump: Dump, source: Source, *, engine: str = "onnxruntime") -> Table:
    """The table of one release."""
    rows = Rows()
    for schema in dump.schemas:
        rows.add_schema((schema.domain or "ai.onnx", schema.name), _schema_row(schema, rows))
    for kernel in dump.kernels:
        rows.add_kernel((kernel.domain or "ai.onnx", kernel.name), _kernel_row(kernel, rows))
    return rows.table(engine, dump.platform, (source,))


def join(tables: Sequence[Table]) -> Table:
    """
    One table of the releases of several, whatever their order.

    Raises:
        ValueError: there are none, they are of different engines or platforms, or have a release in common.
    """
    kinds = {(table.engine, table.platform) for table in tables}
    releases = [source.release for table in tables for source in table.sources]
    if len(kinds) != 1 or len(set(releases)) != len(releases):
        raise ValueError("tables of one engine and one platform can be joined, each with releases of its own")
    return _picked(tables, releases)


def only(table: Table, releases: Iterable[str]) -> Table:
    """The table without all other releases."""
    return _picked([table], set(releases))


def _picked(tables: Sequence[Table], releases: Iterable[str]) -> Table:
    places = {release: bit for bit, release in enumerate(sorted(releases, key=Version))}
    sources = {source.release: source for table in tables for source in table.sources}
    rows = Rows()
    for table in tables:
        own = enumerate(source.release for source in table.sources)
        rows.take(table, {bit: places[release] for bit, release in own if release in places})
    return rows.table(tables[0].engine, tables[0].platform, tuple(sources[release] for release in places))


def _schema_row(schema: DumpedSchema, rows: Rows) -> SchemaRow:
    return SchemaRow(
        schema.since,
        schema.deprecated,
        tuple(_formal(each) for each in schema.inputs),
        tuple(_formal(each) for each in schema.outputs),
        rows.constraints(schema.constraints),
        tuple((name, kind, required) for name, (kind, required) in sorted(schema.attributes.items())),
        *schema.inputs_range,
        *schema.outputs_range,
        schema.experimental,
        1,
    )


def _formal(formal: DumpedFormal) -> Formal:
    mixed = formal.option == "Variadic" and not formal.homogeneous
    return Formal(formal.name, formal.type, MIXED if mixed else OPTIONS[formal.option])


def _kernel_row(kernel: DumpedKernel, rows: Rows) -> KernelRow:
    start, end = kernel.versions
    return KernelRow(start, 0 if end == OPEN else end, kernel.provider, rows.constraints(kernel.constraints), 1)
