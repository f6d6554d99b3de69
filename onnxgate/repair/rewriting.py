"""A model's file with some of its fields replaced. All others are copied as they are, unread, also unknown ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxgate.model.wire import LENGTH, Field, Source, UnreadableModel, fields, length_field
from onnxgate.repair.parts import Part, Span, size_of

_DEPTH = 100
"""Nesting that protobuf accepts. Source: protobuf's default recursion limit."""

Key = tuple[str, str]  # ("GraphProto", "output"); ("", "TensorProto") is every tensor
Edit = Callable[["Found"], Sequence[Part] | None]
"""What stands in the place of a field, with its header; None leaves it alone."""
Edits = Mapping[Key, Edit]


def rewritten(path: Path, edits: Edits) -> tuple[Part, ...]:
    """The file with the edits made.

    Raises:
        UnreadableModel: it is no sequence of whole messages.
    """
    from onnx import ModelProto

    with path.open("rb", buffering=0) as file:
        source = Source(file)
        message = _Message(path, source, ModelProto.DESCRIPTOR, 0, source.size_bytes)
        return tuple(_rewritten(message, edits, 0))


def headed(number: int, parts: Sequence[Part]) -> list[Part]:
    """A length-delimited field of these bytes."""
    return [length_field(number, size_of(parts)), *parts]


@dataclass(frozen=True, slots=True)
class _Message:
    """Where a message lies. `form` is its descriptor."""

    path: Path
    source: Source
    form: Any
    start: int
    end: int

    def fields(self) -> Iterator[Field]:
        return fields(self.source, self.start, self.end)

    def span(self, start: int, end: int) -> list[Part]:
        return [Span(self.path, start, end)] if end > start else []


@dataclass(frozen=True, slots=True)
class Found:
    """A field that an edit is asked about."""

    message: _Message
    field: Field
    depth: int

    @property
    def number(self) -> int:
        """The field's number."""
        return self.field.number

    def content(self) -> bytes:
        """Its bytes, without the header."""
        return self.message.source.read(self.field.start, self.field.end)

    def replaced(self, content: Sequence[Part]) -> list[Part]:
        """The same field with other bytes."""
        return headed(self.number, content)

    def inner(self) -> Iterator[Field]:
        """The fields of the message that it holds."""
        return fields(self.message.source, self.field.start, self.field.end)

    def edited(self, edits: Edits, *more: Part, shallow: bool = False) -> list[Part]:
        """The same field with edits made inside, and with `more` at the end of it."""
        return self.replaced([*_rewritten(self._inside(), edits, self.depth + 1, shallow=shallow), *more])

    def without(self, numbers: frozenset[int]) -> list[Part]:
        """The bytes of the message that it holds, but for these fields."""
        inside = self._inside()
        parts: list[Part] = []
        for each in inside.fields():
            if each.number not in numbers:
                parts += inside.span(each.tag, each.end)
        return parts

    def _inside(self) -> _Message:
        message = self.message
        form = message.form.fields_by_number[self.number].message_type
        return _Message(message.path, message.source, form, self.field.start, self.field.end)


def _rewritten(message: _Message, edits: Edits, depth: int, *, shallow: bool = False) -> list[Part]:
    if depth > _DEPTH:
        raise UnreadableModel(f"a model nested more than {_DEPTH} messages deep")
    parts: list[Part] = []
    copied = message.start
    for field in message.fields():
        new = _replacement(message, field, edits, depth, shallow)
        if new is not None:
            parts += [*message.span(copied, field.tag), *new]
            copied = field.end
    return [*parts, *message.span(copied, message.end)]


def _replacement(message: _Message, field: Field, edits: Edits, depth: int, shallow: bool) -> Sequence[Part] | None:
    form = message.form.fields_by_number.get(field.number)
    if form is None:
        return None
    inside = form.message_type if field.wire == LENGTH else None
    edit = edits.get((message.form.name, form.name)) or (edits.get(("", inside.name)) if inside else None)
    found = Found(message, field, depth)
    if edit is not None and (new := edit(found)) is not None:
        return new
    if inside is None or shallow or not _reaches(inside, frozenset(edits)):
        return None
    return found.edited(edits)


@functools.cache
def _reaches(form: Any, keys: frozenset[Key]) -> bool:
    """Whether anything in messages of this form may be edited."""
    seen: set[str] = set()
    waiting = [form]
    while waiting:
        form = waiting.pop()
        seen.add(form.full_name)
        for field in form.fields:
            if (form.name, field.name) in keys or (field.message_type and ("", field.message_type.name) in keys):
                return True
            if field.message_type and field.message_type.full_name not in seen:
                waiting.append(field.message_type)
    return False
