"""Read the shipped data, merge new harvests into it, and encode it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from packaging.version import Version

from harvest.summary import summary
from onnxgate.support import harvest
from onnxgate.support.limits import Limits
from onnxgate.support.operators import Table, TableSource, decode_table, encode_table

Row = TypeVar("Row", Limits, TableSource)


class Record(Protocol):
    """Measurements of one release."""

    @property
    def source(self) -> TableSource:
        """The package of the release."""

    @property
    def platform(self) -> str:
        """The platform on which the release was measured."""

    @property
    def harvest(self) -> harvest.HarvestRecord:
        """The limits and the table of the release."""


@dataclass(frozen=True, slots=True)
class Description:
    """Description of one engine's data. `head` is the beginning of its page."""

    engine: str
    platform: str  # kernels of a release may differ on other processors
    head: str

    @property
    def kernels(self) -> str:
        """Name of the file with schemas and kernels."""
        return f"{self.engine}-kernels.json.z"

    @property
    def limits(self) -> str:
        """Name of the file with limits."""
        return f"{self.engine}-limits.json"

    @property
    def summary(self) -> str:
        """Name of the page for reviewers."""
        return f"{self.engine}-kernels.md"


@dataclass(frozen=True, slots=True)
class Data:
    """The shipped data of one engine; releases are in ascending order."""

    description: Description
    table: Table | None
    limits: Mapping[str, Limits]
    sources: Mapping[str, TableSource]  # of all releases, including those without a kernel registry


class LimitsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the limits file that this script reads."""

    releases: dict[str, Limits] = {}
    sources: tuple[TableSource, ...] = ()


def read(folder: Path, description: Description) -> Data:
    """Return the shipped data; it is empty if the files do not exist yet."""
    kernels, limits = folder / description.kernels, folder / description.limits
    actual = msgspec.json.decode(limits.read_bytes(), type=LimitsFile) if limits.exists() else LimitsFile()
    sources = {source.release: source for source in actual.sources}
    table = decode_table(kernels.read_bytes()) if kernels.exists() else None
    return Data(description, table, actual.releases, sources)


def merged(old: Data, records: Iterable[Record]) -> Data:
    """Return the data, with the releases of the records added or replaced."""
    new = {record.source.release: record for record in records}
    for record in new.values():
        if record.platform != old.description.platform:
            raise SystemExit(f"the shipped data is for {old.description.platform}, not for {record.platform}")
    limits = {**old.limits, **{release: record.harvest.limits for release, record in new.items()}}
    sources = {**old.sources, **{release: record.source for release, record in new.items()}}
    return Data(old.description, _table(old.table, new), _ascending(limits), _ascending(sources))


def _table(old: Table | None, new: Mapping[str, Record]) -> Table | None:
    tables = [table for record in new.values() if (table := record.harvest.table) is not None]
    stays = {source.release for source in old.sources} - new.keys() if old is not None else set()
    if old is not None and stays:
        tables.append(harvest.select_releases(old, stays))
    return harvest.join_tables(tables) if tables else None


def _ascending(rows: Mapping[str, Row]) -> dict[str, Row]:
    return dict(sorted(rows.items(), key=lambda row: Version(row[0])))


def files(data: Data) -> dict[str, bytes]:
    """Return the content of every file by name; equal data is encoded as equal bytes."""
    description = data.description
    made = {description.limits: _limits(data).encode(), description.summary: summary(data).encode()}
    return made if data.table is None else {description.kernels: encode_table(data.table), **made}


def is_same(path: Path, content: bytes) -> bool:
    """Return whether a file has this content, after decompression, as builds of zlib may compress it differently."""
    if not path.is_file():
        return False
    actual = path.read_bytes()
    return zlib.decompress(actual) == zlib.decompress(content) if path.suffix == ".z" else actual == content


def _limits(data: Data) -> str:
    """Encode one release per line."""
    rows = ",\n".join(f'    "{release}": {_json(row)}' for release, row in data.limits.items())
    sources = ",\n".join(f"    {_json(source)}" for source in data.sources.values())
    return (
        f'{{\n  "engine": "{data.description.engine}",\n  "platform": "{data.description.platform}",\n'
        f'  "releases": {{\n{rows}\n  }},\n  "sources": [\n{sources}\n  ]\n}}\n'
    )


def _json(row: msgspec.Struct) -> str:
    return json.dumps(msgspec.to_builtins(row))
