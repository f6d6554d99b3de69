"""Edit model files without loading weights into memory. An edited file consists of new bytes and ranges of files."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from onnxgate.core.errors import OnnxgateError
from onnxgate.core.files import link_or_copy, replace_atomically, sha256_of
from onnxgate.core.text import quote_path
from onnxgate.model.reading.file_format import (
    LENGTH,
    Field,
    FileWindow,
    UnreadableModel,
    encode_length_prefix,
    iter_fields,
)

_CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes in a file: `start` is inclusive, `end` is exclusive."""

    file: Path
    start: int
    end: int


Part = bytes | Span


def total_size(parts: Iterable[Part]) -> int:
    """Return the total number of bytes in all parts of a file."""
    return sum(part.end - part.start if isinstance(part, Span) else len(part) for part in parts)


def write_parts(parts: Sequence[Part], path: Path) -> None:
    """Write the parts to a file in the given order.

    Raises:
        OSError: the file cannot be written, or a source file became shorter.
    """
    with path.open("wb") as target:
        for part in parts:
            if isinstance(part, bytes):
                target.write(part)
                continue
            with part.file.open("rb") as source:
                source.seek(part.start)
                for start in range(part.start, part.end, _CHUNK_BYTES):
                    chunk = source.read(min(_CHUNK_BYTES, part.end - start))
                    if len(chunk) < min(_CHUNK_BYTES, part.end - start):
                        raise OSError(f"`{part.file}` was truncated while it was read")
                    target.write(chunk)
        target.flush()
        os.fsync(target.fileno())


_MAX_DEPTH = 100
"""Maximum nesting depth of messages that protobuf accepts. Source: protobuf's default recursion limit."""

FieldKey = tuple[str, str]  # ("GraphProto", "output"); ("", "TensorProto") is every tensor
Edit = Callable[["FieldMatch"], Sequence[Part] | None]
"""Function that edits a protobuf field. It returns the new field with its header, or None to keep the old one."""
Edits = Mapping[FieldKey, Edit]


def rewrite_fields(path: Path, edits: Edits) -> tuple[Part, ...]:
    """Return the edited file as parts: new bytes, and ranges of the original file.

    Raises:
        UnreadableModel: the file is not a valid protobuf message.
    """
    with path.open("rb", buffering=0) as file:
        source = FileWindow(file)
        message = _Message(path, source, ModelProto.DESCRIPTOR, 0, source.size_bytes)
        return tuple(_rewrite_message(message, edits, 0))


def length_delimited_field(number: int, parts: Sequence[Part]) -> list[Part]:
    """Return a length-delimited protobuf field with this content."""
    return [encode_length_prefix(number, total_size(parts)), *parts]


@dataclass(frozen=True, slots=True)
class _Message:
    """A protobuf message, given by its byte range in a file. `form` is the descriptor of its type."""

    path: Path
    source: FileWindow
    form: Any
    start: int
    end: int

    def fields(self) -> Iterator[Field]:
        return iter_fields(self.source, self.start, self.end)

    def span(self, start: int, end: int) -> list[Part]:
        return [Span(self.path, start, end)] if end > start else []


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """A field of a protobuf message that an edit may replace."""

    message: _Message
    field: Field
    depth: int

    def content(self) -> bytes:
        """Return the bytes of this protobuf field, without its header."""
        return self.message.source.read(self.field.start, self.field.end)

    def replaced(self, content: Sequence[Part]) -> list[Part]:
        """Return this protobuf field with new content."""
        return length_delimited_field(self.field.number, content)

    def inner(self) -> Iterator[Field]:
        """Yield the fields of the message that this field contains."""
        return iter_fields(self.message.source, self.field.start, self.field.end)

    def edited(self, edits: Edits, *more: Part, shallow: bool = False) -> list[Part]:
        """Return this message field with the edits applied to the fields in it, and `more` appended."""
        return self.replaced([*_rewrite_message(self._inside(), edits, self.depth + 1, shallow=shallow), *more])

    def without(self, numbers: frozenset[int]) -> list[Part]:
        """Return the content of this message field, without the inner fields that have the given numbers."""
        inside = self._inside()
        parts: list[Part] = []
        for field in inside.fields():
            if field.number not in numbers:
                parts += inside.span(field.tag, field.end)
        return parts

    def _inside(self) -> _Message:
        message = self.message
        form = message.form.fields_by_number[self.field.number].message_type
        return _Message(message.path, message.source, form, self.field.start, self.field.end)


def _rewrite_message(message: _Message, edits: Edits, depth: int, *, shallow: bool = False) -> list[Part]:
    if depth > _MAX_DEPTH:
        raise UnreadableModel(f"a model with messages nested more than {_MAX_DEPTH} levels deep")
    parts: list[Part] = []
    copied = message.start
    for field in message.fields():
        form = message.form.fields_by_number.get(field.number)
        if form is None:
            continue
        inside = form.message_type if field.wire == LENGTH else None
        edit = edits.get((message.form.name, form.name)) or (edits.get(("", inside.name)) if inside else None)
        match = FieldMatch(message, field, depth)
        new = edit(match) if edit is not None else None
        if new is None and inside and not shallow and _may_contain_edits(inside, frozenset(edits)):
            new = match.edited(edits)
        if new is not None:
            parts += [*message.span(copied, field.tag), *new]
            copied = field.end
    return [*parts, *message.span(copied, message.end)]


@functools.cache
def _may_contain_edits(form: Any, keys: frozenset[FieldKey]) -> bool:
    """Return whether messages of type `form` can contain, at any depth, a field that an edit applies to."""
    forms = {form.full_name: form}
    queue = [form]
    for form in queue:
        for field in form.fields:
            inside = field.message_type
            if (form.name, field.name) in keys or (inside and ("", inside.name) in keys):
                return True
            if inside and inside.full_name not in forms:
                forms[inside.full_name] = inside
                queue.append(inside)
    return False


def replace_model_file(model: Path, root: Path, sha256: str, fresh: Path, backups: Path) -> Path:
    """Replace a model with `fresh`, following symbolic links. Return the path of the backup in `backups`.

    Raises:
        OnnxgateError: the file is outside the repository, cannot be written, or was changed in the meantime; the
            original is not modified.
    """
    file = Path(os.path.realpath(model))
    if not file.is_relative_to(os.path.realpath(root)):
        message = f"`{model}` is a link to `{file}`, which is outside the repository"
        raise OnnxgateError(message, hint="replace the link with a copy of the file")
    if not file.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise OnnxgateError(f"`{model}` is read-only", hint=f"run `chmod u+w {quote_path(str(file))}`")
    if sha256_of(file) != sha256:
        raise OnnxgateError(f"`{file}` was changed while the fix was being verified", hint="run `onnxgate fix` again")
    backup = backups / sha256[:16] / file.name
    try:
        if not backup.exists() or sha256_of(backup) != sha256:
            backup.parent.mkdir(parents=True, exist_ok=True)
            backup.unlink(missing_ok=True)
            link_or_copy(file, backup)  # a hard link if possible, since the model is replaced, not rewritten
        _write_replacement(file, fresh)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise OnnxgateError(f"`{file}` cannot be replaced: {why}", hint="the original file was not changed") from error
    return backup


def _write_replacement(file: Path, fresh: Path) -> None:
    """Replace the content of `file` atomically with that of `fresh`. Its owner and permissions are kept."""
    with replace_atomically(file, private=True) as temporary:
        shutil.copyfile(fresh, temporary)
        status = file.stat()
        with contextlib.suppress(OSError, AttributeError):  # not permitted, or a system without owners
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))
        with temporary.open("rb") as copy:
            os.fsync(copy.fileno())
        if sha256_of(temporary) != sha256_of(fresh):
            raise OSError("the written file differs from the repaired model")
