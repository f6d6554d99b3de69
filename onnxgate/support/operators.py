"""Kernels and operator schemas of an engine, in a table whose rows list the releases that they apply to.

Source: the wheels of ONNX Runtime report their rows; for other engines, `tools/harvest_support.py` loads a model for
each row. `support/harvest` builds the tables.
"""

from __future__ import annotations

import functools
import re
import zlib
from pathlib import Path

import msgspec

from onnxgate.core.errors import OnnxgateError
from onnxgate.support import limits

SINGLE, OPTIONAL, VARIADIC, MIXED = range(4)
"""Kinds of formal parameters in operator schemas. MIXED is a variadic parameter whose arguments can differ in type."""
PROBED_ENGINES = frozenset({"openvino", "tract"})
"""Engines with tables of the models that they load; the tables contain no schemas, and matching is different."""
SUPPORT_FOLDER = Path(__file__).resolve().parent
_MAP_TYPE = re.compile(r"map\((\w+), ?(\w+)\)")
"""Pattern of `map` types in schemas, such as `map(int64,float)`. Value types are spelled `map(int64,tensor(float))`."""


class TableSource(msgspec.Struct, frozen=True, kw_only=True):
    """The wheel of a release that reported the release's kernels and operator schemas."""

    release: str
    wheel: str  # file name
    sha256: str
    commit: str = ""  # of the build; not reported by older wheels


class FormalParameter(msgspec.Struct, frozen=True, array_like=True):
    """One formal input or output of an operator. `type` is a constraint's name (`T`) or a type (`tensor(int64)`)."""

    name: str
    type: str
    option: int


class SchemaRow(msgspec.Struct, frozen=True, array_like=True):
    """One version of an operator's schema, as a row of the table.

    `releases` is a bit mask of the releases that contain it; the lowest bit is the oldest release in the table.
    """

    since: int
    deprecated: bool
    inputs: tuple[FormalParameter, ...]
    outputs: tuple[FormalParameter, ...]
    constraints: tuple[tuple[str, int], ...]  # name -> index of the set of types
    attributes: tuple[tuple[str, str, bool], ...]  # name, type ("INT", "FLOATS"), required
    inputs_min: int
    inputs_max: int
    outputs_min: int
    outputs_max: int
    experimental: bool
    releases: int


class KernelRow(msgspec.Struct, frozen=True, array_like=True):
    """One kernel for versions `start` to `end` of its operator; an `end` of 0 means an open-ended range."""

    start: int
    end: int
    provider: str
    constraints: tuple[tuple[str, int], ...]  # a constraint's or a parameter's name -> index of the set of types
    releases: int


class ConditionRow(msgspec.Struct, frozen=True, array_like=True):
    """Features of nodes of operator version `start` that releases refuse, although they have a kernel for it."""

    start: int
    features: tuple[str, ...]  # of `matching/probed/node_features`, such as `axes: dynamic`
    releases: int


class OperatorRows(msgspec.Struct, frozen=True, array_like=True):
    """All schemas and kernels of one operator in a table, and the conditions on which it is refused."""

    schemas: tuple[SchemaRow, ...]
    kernels: tuple[KernelRow, ...]
    conditions: tuple[ConditionRow, ...] = ()  # only of engines whose support was probed


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels and operator schemas of several releases. The rows of an operator are decoded on first use."""

    version: int = 1
    engine: str = "onnxruntime"
    platform: str = ""  # of the wheels: kernels may differ by processor
    sources: tuple[TableSource, ...]  # ascending; a release's bit is its index here
    types: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...]  # of indices into `types`
    operators: dict[str, dict[str, msgspec.Raw]]  # domain -> operator -> OperatorRows


class Kernel(msgspec.Struct, frozen=True, eq=False):
    """A kernel of an operator, with the types that it accepts. Releases with an equal kernel share the object."""

    start: int
    end: int  # 0: open-ended
    provider: str
    constraints: dict[str, frozenset[str]]


class Condition(msgspec.Struct, frozen=True, eq=False):
    """Features of nodes of operator version `start` that a release refuses."""

    start: int
    features: frozenset[str]


class Schema(msgspec.Struct, frozen=True, eq=False):
    """One version of an operator's schema, with the accepted types. Releases with an equal schema share the object."""

    since: int
    deprecated: bool
    inputs: tuple[FormalParameter, ...]
    outputs: tuple[FormalParameter, ...]
    constraints: dict[str, frozenset[str]]
    attributes: dict[str, tuple[str, bool]]  # name -> type ("INT"), required
    inputs_min: int
    inputs_max: int
    outputs_min: int
    outputs_max: int
    experimental: bool

    def types_of(self, formal: FormalParameter) -> frozenset[str]:
        """Return the types that a formal parameter accepts."""
        return self.constraints.get(formal.type) or frozenset({formal.type})


class Operator(msgspec.Struct, frozen=True, eq=False):
    """An operator with its schemas and kernels in a release. Releases in which these are equal share the object."""

    domain: str  # "ai.onnx" for the default domain
    name: str
    schemas: tuple[Schema, ...]  # ascending
    kernels: tuple[Kernel, ...]
    conditions: tuple[Condition, ...] = ()

    def schema(self, version: int) -> Schema | None:
        """Return the newest schema that was introduced at or before the imported `version`."""
        for schema in reversed(self.schemas):
            if schema.since <= version:
                return schema
        return None


class Implementation:
    """Operators that one release implements. Domains that are not in `newest_opsets` have no opset limit."""

    def __init__(self, release: str, newest_opsets: dict[str, int], source: _OperatorCache, bit: int) -> None:
        self.release = release
        self.newest_opsets = newest_opsets
        self.engine = source.table.engine
        self.is_probed = self.engine in PROBED_ENGINES
        self.answers: dict[object, object] = {}  # cached results of matching
        self._source = source
        self._bit = bit
        self._operators: dict[tuple[str, str], Operator | None] = {}
        self._domains: tuple[str, ...] | None = None
        self._names: dict[str, tuple[str, ...]] = {}

    def operator(self, domain: str, name: str) -> Operator | None:
        """Return an operator with its schemas and kernels in this release; None if the release has neither."""
        if not self.knows(domain, name):  # a model may name any number of these
            return None
        key = (domain, name)
        if key not in self._operators:
            self._operators[key] = self._source.operator(domain, name, self._bit)
        return self._operators[key]

    def knows(self, domain: str, name: str) -> bool:
        """Return whether the table has rows of an operator, for this or another release."""
        return name in self._source.table.operators.get(domain, {})

    def has_domain(self, domain: str) -> bool:
        """Return whether this release has an operator in the domain."""
        return domain in self.domains()

    def domains(self) -> tuple[str, ...]:
        """Return the domains in which this release has an operator, sorted."""
        if self._domains is None:
            known = self._source.table.operators
            present = (it for it, names in known.items() if any(self.operator(it, name) for name in names))
            self._domains = tuple(sorted(present))
        return self._domains

    def operators(self, domain: str) -> tuple[str, ...]:
        """Return the names of the domain's operators in this release, sorted."""
        if domain not in self._source.table.operators:
            return ()
        if domain not in self._names:
            names = self._source.table.operators[domain]
            self._names[domain] = tuple(sorted(name for name in names if self.operator(domain, name)))
        return self._names[domain]


_DecodedRows = tuple[list[tuple[int, Schema]], list[tuple[int, Kernel]], list[tuple[int, Condition]]]


class _OperatorCache:
    """Operators of a table. Releases that have the same schemas and kernels of an operator share one object."""

    def __init__(self, table: Table) -> None:
        self.table = table
        types = [_MAP_TYPE.sub(r"map(\1,tensor(\2))", spelling) for spelling in table.types]
        self._sets = [frozenset(types[index] for index in members) for members in table.sets]
        self._rows: dict[tuple[str, str], _DecodedRows] = {}
        self._operators: dict[tuple[str, str, tuple[bool, ...]], Operator] = {}

    def operator(self, domain: str, name: str, bit: int) -> Operator | None:
        raw = self.table.operators.get(domain, {}).get(name)
        if raw is None:
            return None
        if (domain, name) not in self._rows:
            rows = msgspec.json.decode(raw, type=OperatorRows)
            schemas = [(row.releases, self._schema(row)) for row in sorted(rows.schemas, key=lambda row: row.since)]
            kernels = [(row.releases, self._kernel(row)) for row in rows.kernels]
            conditions = [(row.releases, Condition(row.start, frozenset(row.features))) for row in rows.conditions]
            self._rows[domain, name] = schemas, kernels, conditions
        schemas, kernels, conditions = self._rows[domain, name]
        has = tuple(bool(releases >> bit & 1) for releases, _ in (*schemas, *kernels, *conditions))
        if not any(has):
            return None
        key = (domain, name, has)
        if key not in self._operators:
            self._operators[key] = Operator(
                domain,
                name,
                tuple(schema for releases, schema in schemas if releases >> bit & 1),
                tuple(kernel for releases, kernel in kernels if releases >> bit & 1),
                tuple(condition for releases, condition in conditions if releases >> bit & 1),
            )
        return self._operators[key]

    def _schema(self, row: SchemaRow) -> Schema:
        return Schema(
            row.since,
            row.deprecated,
            row.inputs,
            row.outputs,
            {name: self._sets[index] for name, index in row.constraints},
            {name: (kind, required) for name, kind, required in row.attributes},
            row.inputs_min,
            row.inputs_max,
            row.outputs_min,
            row.outputs_max,
            row.experimental,
        )

    def _kernel(self, row: KernelRow) -> Kernel:
        return Kernel(row.start, row.end, row.provider, {name: self._sets[index] for name, index in row.constraints})


def encode_table(table: Table) -> bytes:
    """Encode a table of kernels and schemas as compressed JSON."""
    return zlib.compress(msgspec.json.encode(table), 9)


def decode_table(data: bytes) -> Table:
    """Decode a table of kernels and schemas from compressed JSON."""
    return msgspec.json.decode(zlib.decompress(data), type=Table)


def name_kernel_table(engine: str = "onnxruntime") -> str:
    """Return the path of an engine's shipped table, relative to the folder of this module."""
    return f"data/{engine}-kernels.json.z"


@functools.cache
def load_shipped_table(engine: str = "onnxruntime") -> Table:
    """Return the table of an engine's kernels and operator schemas that is shipped with onnxgate.

    Raises:
        OnnxgateError: the installation is corrupt.
    """
    name = name_kernel_table(engine)
    try:
        return decode_table((SUPPORT_FOLDER / name).read_bytes())
    except (OSError, zlib.error, msgspec.MsgspecError, UnicodeError) as error:
        raise OnnxgateError(f"`{name}` of this installation is corrupt: {error}", hint="reinstall onnxgate") from error


def build_implementations(table: Table, newest_opsets: dict[str, dict[str, int]]) -> dict[str, Implementation]:
    """Return the operators that each release in a table implements, by release.

    `newest_opsets` maps each release to the newest opset of each domain that it supports.
    """
    operators = _OperatorCache(table)
    return {
        source.release: Implementation(source.release, newest_opsets.get(source.release, {}), operators, bit)
        for bit, source in enumerate(table.sources)
    }


@functools.cache
def _load_implementations(engine: str) -> dict[str, Implementation]:
    releases = limits.load_limit_table(engine).releases
    if not releases:
        return {}
    return build_implementations(load_shipped_table(engine), {name: row.opsets for name, row in releases.items()})


def get_implementation(release: str, engine: str = "onnxruntime") -> Implementation | None:
    """Return the operators that an exact release implements; None if its kernels are unknown."""
    return _load_implementations(engine).get(release)


def list_known_releases(engine: str = "onnxruntime") -> tuple[str, ...]:
    """Return the releases of an engine whose kernels are known, in ascending order."""
    return tuple(_load_implementations(engine))


def find_newest_schema(domain: str, name: str, version: int) -> Schema | None:
    """Return an operator's schema at opset `version` (0: newest) from the newest ONNX Runtime release that has one."""
    if name not in load_shipped_table().operators.get(domain, {}):
        return None
    for implementation in reversed(_load_implementations("onnxruntime").values()):
        operator = implementation.operator(domain, name)
        schema = operator.schema(version or 2**31) if operator else None
        if schema is not None:
            return schema
    return None
