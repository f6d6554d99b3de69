"""Run every reader on one input, and collect failures."""

from __future__ import annotations

import resource
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.fuzz.readers import COSTLY, DOCUMENTED, OF_FILES, OF_MODELS, Look, Subject
from campaigns.fuzz.seed_models import contents, furnish
from onnxgate.core.process_pool import FailedCallError

MOST_MIB = 192
"""Additional memory that a reader may need for any input."""
MOST_TIMES = 100
"""Additional memory relative to the file's size."""
ADDRESS_SPACE_BYTES = 6 * 2**30
_PACKAGE = "onnxgate/"


@dataclass(frozen=True, slots=True)
class Find:
    """A failure of a reader; `what` is equal for all inputs that cause the same failure."""

    reader: str
    what: str
    detail: str = ""


@dataclass(slots=True)
class Bench:
    """A folder with a valid model and its data; each input is written to this folder."""

    folder: Path
    readers: Mapping[str, Look] = field(default_factory=lambda: {**OF_FILES, **OF_MODELS})
    costly_every: int = 1  # expensive readers run on one of so many inputs
    at: Callable[[int], None] = lambda number: None  # receives the running reader's name for the supervisor

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        furnish(self.folder)
        (self.folder / "seed.onnx").write_bytes(contents()[0])
        with suppress(FileExistsError):
            (self.folder / "link").symlink_to("/dev/zero")

    def look(self, data: bytes) -> Iterator[Find]:
        """Yield all failures for these bytes."""
        path = self.folder / "m.onnx"
        path.write_bytes(data)
        subject = Subject(path, self.folder / "seed.onnx", self.folder / "scratch")
        allowed_kib = (MOST_MIB * 2**20 + MOST_TIMES * len(data)) // 1024
        before = _reset_peak()
        for number, name in enumerate(self.readers):
            if self._is_due(name, subject, data):
                self.at(number)
                yield from _watched(name, self.readers[name], subject)
        if _peak_kib() - before > allowed_kib:
            yield from self._greedy(subject, allowed_kib)

    def _is_due(self, name: str, subject: Subject, data: bytes) -> bool:
        if name in COSTLY and zlib.crc32(data) % self.costly_every:
            return False
        return subject.readable or name not in OF_MODELS

    def _greedy(self, subject: Subject, allowed_kib: int) -> Iterator[Find]:
        """Run each reader separately, and yield those that need too much memory."""
        for name, look in self.readers.items():
            before = _reset_peak()
            for _ in _watched(name, look, subject):
                pass
            if (grown := _peak_kib() - before) > allowed_kib:
                yield Find(name, "memory", f"{grown // 1024} MiB, allowed: {allowed_kib // 1024} MiB")


def limit_memory() -> None:
    """Limit the address space; allocations beyond the limit raise MemoryError or abort."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))


def _watched(name: str, look: Look, subject: Subject) -> Iterator[Find]:
    try:
        look(subject)
    except FailedCallError:  # onnx may crash in its child process
        pass
    except DOCUMENTED.get(name, ()):
        pass
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        yield Find(name, f"{type(error).__name__} at {_where(error)}", str(error)[:300])


def _where(error: BaseException) -> str:
    """Return the innermost traceback line in onnxgate."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__, limit=-200) if _PACKAGE in frame.filename]
    if isinstance(error, RecursionError):
        names = sorted({frame.name for frame in frames})
        return f"{frames[-1].filename.rpartition(_PACKAGE)[2]} in {', '.join(names)}" if frames else "elsewhere"
    frame = next(reversed(frames), None)
    return f"{frame.filename.rpartition(_PACKAGE)[2]}:{frame.lineno} {frame.name}" if frame else "elsewhere"


def _reset_peak() -> int:
    """Return the resident memory in KiB, and reset the peak."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123 - thousands a second
        file.write("5")
    return _status(b"VmRSS:")


def _peak_kib() -> int:
    return _status(b"VmHWM:")


def _status(key: bytes) -> int:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        status = file.read()
    start = status.index(key) + len(key)
    return int(status[start : status.index(b"kB", start)])
