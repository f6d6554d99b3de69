"""A file put in the place of another at once, and the old one kept. Whoever reads meanwhile sees one or the other."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from onnxgate.errors import OnnxgateError
from onnxgate.model.hashing import sha256_of
from onnxgate.model.linking import link


@dataclass(frozen=True, slots=True)
class Place:
    """The file to be replaced, links followed, as it was when it was read."""

    file: Path
    sha256: str


def place_of(model: Path, root: Path, sha256: str) -> Place:
    """Where a model really lies.

    Raises:
        OnnxgateError: it lies outside of the repository, or must not be written.
    """
    real = Path(os.path.realpath(model))
    if not real.is_relative_to(os.path.realpath(root)):
        message = f"`{model}` is a link to `{real}`, outside of the repository: it is not written"
        raise OnnxgateError(message, hint="copy the file to where the link is, in place of linking it")
    if not real.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise OnnxgateError(f"`{model}` is read-only", hint=f"chmod u+w {real}")
    return Place(real, sha256)


def replace(place: Place, fresh: Path, backups: Path) -> Path:
    """Put the file `fresh` there, and give the path of the old one, kept below `backups`.

    Raises:
        OnnxgateError: the file has changed since it was read, or cannot be written; then the old one is there.
    """
    if sha256_of(place.file) != place.sha256:
        raise OnnxgateError(f"`{place.file}` was changed by somebody else meanwhile", hint="run `onnxgate fix` again")
    try:
        kept = _keep(place, backups)
        with _beside(place.file) as temporary:
            shutil.copyfile(fresh, temporary)
            _settle(temporary, place.file)
            if sha256_of(temporary) != sha256_of(fresh):
                raise OSError("what was written is not what was to be written")
            temporary.replace(place.file)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise OnnxgateError(
            f"`{place.file}` cannot be replaced: {why}", hint="the old file is there as it was"
        ) from error
    return kept


def _keep(place: Place, backups: Path) -> Path:
    """By a hard link where there can be one: the old content is nobody's but the backup's once it is replaced."""
    kept = backups / place.sha256[:16] / place.file.name
    if kept.exists() and sha256_of(kept) == place.sha256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.unlink(missing_ok=True)
    link(place.file, kept)
    return kept


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    """A new file in the same folder, gone afterwards."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _settle(temporary: Path, old: Path) -> None:
    """Give it the old file's owner and permissions, and have it on disk."""
    status = old.stat()
    with contextlib.suppress(OSError, AttributeError):  # not ours to give, or a system without owners
        os.chown(temporary, status.st_uid, status.st_gid)
    temporary.chmod(stat.S_IMODE(status.st_mode))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
