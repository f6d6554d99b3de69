"""TOML's values as the config's types; every fault of a file is found, each with its key."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from onnxgate.config.lines import Keys
from onnxgate.config.spelling import listed, nearest
from onnxgate.config.types import Table

AnyTable = TypeVar("AnyTable", bound=Table)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one key."""

    keys: Keys
    text: str


SPELLED, LONGEST = 50, 100
"""For so many unknown keys of a table, and so long ones, what is meant is looked for."""
Check = Callable[[Table, Keys], Iterator[Problem]]


class _WrongValueError(Exception):
    """The value is not used; its problem is written down already."""


@dataclass(slots=True)
class Conversion:
    """One pass over a file. `check` judges the meaning of every table that has the right shape."""

    check: Check
    problems: list[Problem] = field(default_factory=list)

    def table(self, raw: object, type_: type[AnyTable], keys: Keys = ()) -> AnyTable | None:
        """The table as its type; None where a key that it cannot do without is missing or wrong."""
        try:
            return cast("AnyTable", self._table(raw, type_, keys))
        except _WrongValueError:
            return None

    def _value(self, raw: object, type_: Any, keys: Keys) -> Any:
        origin = get_origin(type_)
        if isinstance(type_, type) and issubclass(type_, Table):
            return self._table(raw, type_, keys)
        if origin is dict:
            return self._dict(raw, type_, keys)
        if origin is tuple:
            return self._list(raw, type_, keys)
        if origin in (Union, UnionType):
            return self._value(raw, _member(raw, type_), keys) if _member(raw, type_) else self._wrong(raw, type_, keys)
        return self._scalar(raw, type_, keys)

    def _table(self, raw: object, type_: type[Table], keys: Keys) -> Table:
        if not isinstance(raw, dict):
            self._wrong(raw, type_, keys)
        fields = {each.encode_name: each for each in msgspec.structs.fields(type_)}
        self.problems += _unknown_keys(cast("dict[str, Any]", raw), tuple(fields), keys)
        values, complete = {}, True
        for name, each in fields.items():
            try:
                if name in raw:  # type: ignore[operator]
                    values[each.name] = self._value(raw[name], each.type, (*keys, name))  # type: ignore[index]
                elif each.required:
                    self._note((*keys, name), f"is missing; expected {describe(each.type)}")
                    complete = False
            except _WrongValueError:
                complete = complete and not each.required
        if not complete:
            raise _WrongValueError
        converted = type_(**values)
        self.problems += self.check(converted, keys)
        return converted

    def _dict(self, raw: object, type_: Any, keys: Keys) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self._wrong(raw, type_, keys)
        values = {}
        for key, value in cast("dict[str, Any]", raw).items():
            try:
                values[key] = self._value(value, get_args(type_)[1], (*keys, key))
            except _WrongValueError:
                continue
        return values

    def _list(self, raw: object, type_: Any, keys: Keys) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            self._wrong(raw, type_, keys)
        values, complete = [], True
        for index, value in enumerate(cast("list[Any]", raw)):
            try:
                values.append(self._value(value, get_args(type_)[0], (*keys, str(index))))
            except _WrongValueError:
                complete = False
        if not complete:
            raise _WrongValueError  # what is left of a list means something else
        return tuple(values)

    def _scalar(self, raw: object, type_: Any, keys: Keys) -> Any:
        try:
            return msgspec.convert(raw, type_, strict=True)
        except msgspec.ValidationError:
            return self._wrong(raw, type_, keys)

    def _wrong(self, raw: object, type_: Any, keys: Keys) -> Any:
        near = nearest(raw, _choices(type_)) if isinstance(raw, str) and len(raw) <= LONGEST else ""
        kind = "the string " if isinstance(raw, str) and not _choices(type_) else ""
        self._note(keys, f"expected {describe(type_)}, got {kind}{_shown(raw)}{near}")
        raise _WrongValueError

    def _note(self, keys: Keys, text: str) -> None:
        self.problems.append(Problem(keys, text))


def _unknown_keys(raw: Mapping[str, Any], known: Sequence[str], keys: Keys) -> Iterator[Problem]:
    for number, key in enumerate(key for key in raw if key not in known):
        near = nearest(key, known) if number < SPELLED and len(key) <= LONGEST else ""
        yield Problem((*keys, key), "unknown key" + (near or f"; expected one of {listed(known)}"))


def _member(raw: object, union: Any) -> Any:
    """The member of a union that the value's shape asks for; None where none does."""
    for member in get_args(union):
        if _has_shape(raw, member):
            return member
    return None


def _has_shape(raw: object, type_: Any) -> bool:
    if isinstance(raw, dict):
        return get_origin(type_) is dict or (isinstance(type_, type) and issubclass(type_, Table))
    if isinstance(raw, list):
        return get_origin(type_) is tuple
    try:
        msgspec.convert(raw, type_, strict=True)
    except msgspec.ValidationError:
        return False
    return True


def _choices(type_: Any) -> tuple[str, ...]:
    return get_args(type_) if get_origin(type_) is Literal else ()


_WORDS = {
    str: ("a string", "strings"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("`true` or `false`", "`true` or `false`"),
    datetime.date: ("a date such as 2027-03-31", "dates"),
}


def describe(type_: Any, *, many: bool = False) -> str:
    """What a value of the type is, in words: `a list of strings`."""
    origin, members = get_origin(type_), get_args(type_)
    if origin is Literal:
        return f"one of {listed(members)}"
    if origin is tuple:
        return f"a list of {describe(members[0], many=True)}"
    if origin is dict:
        return f"a table of {describe(members[1], many=True)}"
    if origin in (Union, UnionType):
        return " or ".join(describe(each, many=many) for each in members if each is not type(None))
    if issubclass(type_, Table):
        return "tables" if many else "a table"
    return _WORDS[type_][many]


def _shown(raw: object) -> str:
    if isinstance(raw, str):
        return f"`{raw}`"
    if isinstance(raw, bool):
        return f"`{str(raw).lower()}`"
    if isinstance(raw, dict):
        return "a table"
    return "a list" if isinstance(raw, list) else f"`{raw}`"
