"""The types of `onnxgate.toml`. The JSON Schema for editors is generated from them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from onnxgate.core.text import join_quoted, suggest_spelling
from onnxgate.project.toml import Keys


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """One table of the file."""


OptimizationLevel = Literal["all", "disabled"]
ReleaseSelection = Literal["minors", "bounds", "newest", "all"]


class Target(Table, frozen=True, kw_only=True):
    """A range of releases on which the models must load and run."""

    runtime: str  # PEP 508 requirement: "onnxruntime>=1.18,<1.32"
    select: ReleaseSelection = (
        "minors"  # minors: newest patch of each minor; bounds: oldest and newest of the minors; newest: only the newest
    )
    providers: tuple[str, ...] = ("CPUExecutionProvider",)  # in order of preference; all except CPU need `python`
    optimization: tuple[OptimizationLevel, ...] = ("all", "disabled")  # graph optimization levels to test
    extensions: tuple[str, ...] = ()  # packages or libraries with custom operators
    python: str | None = None  # interpreter or folder of your own environment
    required: bool = True  # false: skip the target on machines that cannot run it


class Toolchain(Table, frozen=True, kw_only=True):
    """The environment that models are exported with."""

    python: str | None = None  # interpreter or folder of an environment, relative to the config
    requires: tuple[str, ...] = ()  # required packages: "torch==2.13.*"


class Tolerance(Table, frozen=True, kw_only=True):
    """Tolerance for outputs. A value `a` agrees with its reference `b` if `|a - b| <= atol + rtol * |b|`."""

    rtol: float  # relative tolerance
    atol: float  # absolute tolerance


class Budget(Table, frozen=True, kw_only=True):
    """Maximum size, run time and memory of a model. Ratios are model / baseline, measured in the same check."""

    size_mib: float | None = None  # MiB of the file with its external data
    slower_than_baseline: float | None = None  # ratio of median run times: 1.2 allows 20 % more
    memory_over_baseline: float | None = None  # ratio of peak memory: 1.2 allows 20 % more


class ModelSettings(Table, frozen=True, kw_only=True):
    """Settings of the models that `path` matches; entries that match the same model are merged in order."""

    path: str  # model or glob, relative to the config
    targets: tuple[str, ...] | None = None  # names of targets; default: all
    source: str | None = None  # "file.py:callable" that returns the module and its example inputs
    command: tuple[str, ...] | None = None  # command that exports the model to {output}; may contain {python}, {opset}
    sizes: dict[str, tuple[int, ...]] | None = None  # dynamic axis -> sizes to test; default: a few sizes
    inputs: str | None = None  # glob of .npz files or test_data_set_* folders, or "file.py:callable"
    tolerance: dict[str, float | Tolerance] | None = None  # rtol and atol for all outputs, or for each output
    quantized_from: str | None = None  # path of the float model, relative to the config
    budget: Budget | None = None  # maximum size, run time and memory
    opset: int | dict[str, int] | None = None  # required opset; overrides the `opset` at the top level


class Ignore(Table, frozen=True, kw_only=True):
    """An accepted finding or undecided check, with the reason why it is accepted."""

    rule: str  # rule whose findings are accepted, or `undecided`
    reason: str  # why the finding is accepted; shown in reports
    model: str = "**"  # path or glob; default: all models
    until: datetime.date | None = None  # last day on which the entry applies
    sha256: str | None = None  # SHA-256 of the model; the entry applies only to this version
    fingerprints: tuple[str, ...] | None = None  # fingerprints of the accepted findings; default: all findings


class Limits(Table, frozen=True, kw_only=True):
    """Time and memory limits for each job: one load, run or export."""

    time_s: float = 300.0  # maximum duration in seconds
    memory_mib: int | None = None  # maximum memory in MiB; default: 4 x model size + 4 GiB (20 x for tree ensembles)


class Config(Table, frozen=True, kw_only=True):
    """The top-level keys of `onnxgate.toml`."""

    required_version: str | None = None  # allowed versions of onnxgate: ">=0.1,<0.2"
    models: tuple[str, ...] | None = None  # paths, folders or globs; default: tracked .onnx files
    exclude: tuple[str, ...] = ()  # globs of files and folders to skip
    ir_version: str | int | None = None  # required IR version: 10, or "<=10"
    opset: int | dict[str, int] = {}  # required opset of ai.onnx: 18, or of each domain: { "ai.onnx" = 18 }
    targets: dict[str, Target] = {}  # supported runtimes, by name
    toolchain: Toolchain = Toolchain()  # environment for exports
    model: tuple[ModelSettings, ...] = ()  # settings of models
    rules: dict[str, Literal["error", "warning", "note", "off"]] = {}  # name of a rule -> level of its findings
    ignore: tuple[Ignore, ...] = ()  # accepted findings
    limits: Limits = Limits()  # time and memory limits for each job


def read_opset(value: int | Mapping[str, int] | None) -> Mapping[str, int]:
    """Return the required opset of each domain."""
    return {"ai.onnx": value} if isinstance(value, int) else value or {}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(rule_ids: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of the types. With `rule_ids`, only these rule names are valid."""
    schema = msgspec.json.schema(Config)
    ids = sorted(rule_ids)
    if ids:
        definitions = schema["$defs"]
        definitions["Config"]["properties"]["rules"]["propertyNames"] = {"enum": ids}
        definitions["Ignore"]["properties"]["rule"]["enum"] = ids
    return {"$schema": DIALECT, "title": "onnxgate.toml", **schema}


AnyTable = TypeVar("AnyTable", bound=Table)


class Problem(msgspec.Struct, frozen=True):
    """A problem with one key."""

    keys: Keys
    text: str


MAX_SUGGESTIONS, MAX_SUGGESTION_LENGTH = 50, 100
"""Maximum number of unknown keys in a table that get a suggestion, and the maximum length of such keys."""
TableCheck = Callable[[Table, Keys], Iterator[Problem]]


_INVALID: Any = object()
"""Placeholder for an invalid value whose problem has already been recorded."""


class Conversion(msgspec.Struct):
    """Conversion of one file. `check` validates each table whose values have the right types."""

    check: TableCheck
    problems: list[Problem] = msgspec.field(default_factory=list)

    def table(self, raw: object, type_: type[AnyTable]) -> AnyTable | None:
        """Convert the file's values to a table of this type; return None if a required key is missing or invalid."""
        converted = self._value(raw, type_, ())
        return None if converted is _INVALID else cast("AnyTable", converted)

    def _value(self, raw: Any, type_: Any, keys: Keys) -> Any:
        if get_origin(type_) in (Union, UnionType):
            type_ = next((member for member in get_args(type_) if _has_shape(raw, member)), type_)
        if not _has_shape(raw, type_):
            return self._wrong(raw, type_, keys)
        if isinstance(type_, type) and issubclass(type_, Table):
            return self._table(raw, type_, keys)
        if get_origin(type_) is dict:
            converted = {key: self._value(value, get_args(type_)[1], (*keys, key)) for key, value in raw.items()}
            return {key: value for key, value in converted.items() if value is not _INVALID}
        if get_origin(type_) is tuple:
            values = [self._value(value, get_args(type_)[0], (*keys, str(index))) for index, value in enumerate(raw)]
            is_complete = all(value is not _INVALID for value in values)
            return tuple(values) if is_complete else _INVALID  # part of a list would have a different meaning
        return msgspec.convert(raw, type_, strict=True)

    def _table(self, raw: Mapping[str, Any], type_: type[Table], keys: Keys) -> Any:
        fields = {info.encode_name: info for info in msgspec.structs.fields(type_)}
        for number, key in enumerate(key for key in raw if key not in fields):
            is_short = number < MAX_SUGGESTIONS and len(key) <= MAX_SUGGESTION_LENGTH
            near = suggest_spelling(key, fields) if is_short else ""
            self._note((*keys, key), "unknown key" + (near or f"; expected one of {join_quoted(fields)}"))
        values = {}
        for name, info in fields.items():
            if name in raw:
                values[info.name] = self._value(raw[name], info.type, (*keys, name))
            elif info.required:
                self._note((*keys, name), f"is missing; expected {describe_type(info.type)}")
                values[info.name] = _INVALID
        required = {info.name for info in fields.values() if info.required}
        if any(values[name] is _INVALID for name in required):
            return _INVALID
        converted = type_(**{name: value for name, value in values.items() if value is not _INVALID})
        self.problems += self.check(converted, keys)
        return converted

    def _wrong(self, raw: object, type_: Any, keys: Keys) -> Any:
        choices = get_args(type_) if get_origin(type_) is Literal else ()
        near = suggest_spelling(raw, choices) if isinstance(raw, str) and len(raw) <= MAX_SUGGESTION_LENGTH else ""
        if isinstance(raw, str) and keys[:1] == ("model",) and len(keys) <= 2:  # paths in place of `[[model]]` tables
            near = "; did you mean `models`?"
        if isinstance(raw, (dict, list)):
            value = "a table" if isinstance(raw, dict) else "a list"
        else:
            value = f"`{str(raw).lower() if isinstance(raw, bool) else raw}`"
        kind = "the string " if isinstance(raw, str) and not choices else ""
        self._note(keys, f"expected {describe_type(type_)}, got {kind}{value}{near}")
        return _INVALID

    def _note(self, keys: Keys, text: str) -> None:
        self.problems.append(Problem(keys, text))


def _has_shape(raw: object, type_: Any) -> bool:
    """Return whether a value has this type. The elements of tables and lists are not checked."""
    if isinstance(raw, dict):
        return get_origin(type_) is dict or (isinstance(type_, type) and issubclass(type_, Table))
    if isinstance(raw, list):
        return get_origin(type_) is tuple
    try:
        msgspec.convert(raw, type_, strict=True)
    except msgspec.ValidationError:
        return False
    return True


_TYPE_NAMES = {
    str: ("a string", "strings"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("`true` or `false`", "`true` or `false`"),
    datetime.date: ("a date such as 2027-03-31", "dates"),
}


def describe_type(type_: Any, *, many: bool = False) -> str:
    """Return a description of a type, such as `a list of strings`."""
    origin, members = get_origin(type_), get_args(type_)
    if origin is Literal:
        return f"one of {join_quoted(members)}"
    if origin is tuple:
        return f"a list of {describe_type(members[0], many=True)}"
    if origin is dict:
        return f"a table of {describe_type(members[1], many=True)}"
    if origin in (Union, UnionType):
        return " or ".join(describe_type(member, many=many) for member in members if member is not type(None))
    if issubclass(type_, Table):
        return "tables" if many else "a table"
    return _TYPE_NAMES[type_][many]
