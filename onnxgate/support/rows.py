"""Rows of a table while they are collected: each once, with the releases that have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from onnxgate.support.table import KernelRow, OperatorRows, SchemaRow, Source, Table

Row = TypeVar("Row", SchemaRow, KernelRow)
Operator = tuple[str, str]
"""Domain and name."""


class Rows:
    """Collects rows without their releases, and the releases of each. Sets of types are numbered as they come."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._schemas: dict[Operator, dict[SchemaRow, int]] = defaultdict(dict)
        self._kernels: dict[Operator, dict[KernelRow, int]] = defaultdict(dict)

    def constraints(self, given: Mapping[str, Iterable[str]]) -> tuple[tuple[str, int], ...]:
        """What a row says of its types."""
        return tuple((name, self._number(types)) for name, types in sorted(given.items()))

    def add_schema(self, operator: Operator, row: SchemaRow) -> None:
        """Say that the row's releases have this schema."""
        _add(self._schemas[operator], row)

    def add_kernel(self, operator: Operator, row: KernelRow) -> None:
        """Say that the row's releases have this kernel."""
        _add(self._kernels[operator], row)

    def take(self, table: Table, places: Mapping[int, int]) -> None:
        """The rows of some releases of a table: bit there -> bit here."""
        numbers = [self._number(table.types[index] for index in each) for each in table.sets]
        for domain, operators in table.operators.items():
            for name, raw in operators.items():
                rows = msgspec.json.decode(raw, type=OperatorRows)
                for schema in rows.schemas:
                    self.add_schema((domain, name), _moved(schema, numbers, places))
                for kernel in rows.kernels:
                    self.add_kernel((domain, name), _moved(kernel, numbers, places))

    def table(self, engine: str, platform: str, sources: tuple[Source, ...]) -> Table:
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
        rows: list[SchemaRow | KernelRow] = [row for each in self._schemas.values() for row in each]
        rows += [row for each in self._kernels.values() for row in each]
        return frozenset(number for row in rows for _, number in row.constraints)

    def _operators(self, ranks: Mapping[int, int]) -> dict[str, dict[str, msgspec.Raw]]:
        made: dict[str, dict[str, msgspec.Raw]] = {}
        for domain, name in sorted(self._schemas.keys() | self._kernels.keys()):
            schemas = _ordered(self._schemas.get((domain, name), {}), ranks)
            kernels = _ordered(self._kernels.get((domain, name), {}), ranks)
            if schemas or kernels:  # `take` asks for operators that the releases do not have
                made.setdefault(domain, {})[name] = msgspec.Raw(msgspec.json.encode(OperatorRows(schemas, kernels)))
        return made


def _add(rows: dict[Row, int], row: Row) -> None:
    if row.releases:
        bare = msgspec.structs.replace(row, releases=0)
        rows[bare] = rows.get(bare, 0) | row.releases


def _moved(row: Row, numbers: list[int], places: Mapping[int, int]) -> Row:
    releases = sum(1 << here for there, here in places.items() if row.releases >> there & 1)
    constraints = tuple((name, numbers[index]) for name, index in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)


def _ordered(rows: Mapping[Row, int], ranks: Mapping[int, int]) -> tuple[Row, ...]:
    """By version first; equal rows make equal bytes."""
    made = [_ranked(row, ranks, releases) for row, releases in rows.items()]
    return tuple(sorted(made, key=msgspec.to_builtins))


def _ranked(row: Row, ranks: Mapping[int, int], releases: int) -> Row:
    constraints = tuple((name, ranks[number]) for name, number in row.constraints)
    return msgspec.structs.replace(row, constraints=constraints, releases=releases)
