"""Everything that onnxgate reads and that is no model, fed with what is none: no fault but the documented may come."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from random import Random
from types import FrameType

from campaigns.hostile import mutations

LIMIT_S = 10
"""Longer than this no reader may take over an input of some kilobytes."""
LIMIT_BYTES = 6 * 2**30
"""Address space; a reader that asks for more is one that a file can make to."""


@dataclass(frozen=True)
class Reader:
    """One reader: real inputs, what reads one in a folder of its own, and the only faults that it may raise."""

    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes, Path], object]
    faults: tuple[type[Exception], ...] = ()
    make: Callable[[Random, bytes], bytes] | None = None  # a mutation of its own, of every second input


@dataclass
class Result:
    """What one reader was fed."""

    name: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    finds: dict[str, bytes] = field(default_factory=dict)  # how it failed, by where -> the input


class TooLongError(BaseException):
    """The reader has not come to an end."""


def fuzz(reader: Reader, count: int, seed: int) -> Result:
    """So many inputs, made from the reader's own seeds."""
    random, seeds, result = Random(f"{reader.name} {seed}"), reader.seeds(), Result(reader.name)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onnxgate-hostile-") as scratch:
        for index in range(count):
            data = _made(random, reader, random.choice(seeds), seeds) if index >= len(seeds) else seeds[index]
            result.inputs += 1
            found = failure(reader, data, Path(scratch))
            result.accepted += found is None
            if found:
                result.finds.setdefault(found, data)
    result.seconds = time.monotonic() - began
    return result


def _made(random: Random, reader: Reader, seed: bytes, seeds: tuple[bytes, ...]) -> bytes:
    if reader.make is not None and random.random() < 0.6:
        return reader.make(random, seed)
    return mutations.of_bytes(random, seed, seeds)


def failure(reader: Reader, data: bytes, scratch: Path) -> str | None:
    """How the reader failed on an input; "" where it refused it as documented, None where it took it."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    try:
        reader.read(data, scratch)
    except reader.faults as fault:
        return "" if str(fault) else f"a {type(fault).__name__} that says nothing"
    except (Exception, TooLongError) as error:  # noqa: BLE001 - whatever it is, it is a find
        place = traceback.extract_tb(error.__traceback__)[-1]
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "/onnxgate/" in each.filename]
        where = ours[-1] if ours else place
        return f"{type(error).__name__} in {Path(where.filename).name}:{where.name}: {str(error)[:150]!a}"
    finally:
        signal.alarm(0)
    return None


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLongError


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _one(name: str, count: int, seed: int) -> Result:
    from campaigns.hostile.reader_inputs import READERS

    with _limited():
        return fuzz(next(each for each in READERS if each.name == name), count, seed)


def _fed(asked: tuple[str, int, int]) -> Result:
    return _one(*asked)


def main(count: int, seed: int, jobs: int, only: str) -> int:
    """Feed all readers; 1 where one failed."""
    from campaigns.hostile.reader_inputs import READERS

    asked = [(each.name, count, seed) for each in READERS if only in each.name]
    total: Counter[str] = Counter()
    with Pool(jobs, maxtasksperchild=1) as pool:
        for result in pool.imap_unordered(_fed, asked):
            took = result.inputs - result.accepted
            print(
                f"{result.name:22} {result.inputs:>8,} inputs, {took:>8,} refused, {result.seconds:6.1f} s", flush=True
            )
            total.update(inputs=result.inputs, finds=len([each for each in result.finds if each]))
            for how, data in result.finds.items():
                if how:
                    print(f"    FOUND {how}\n      {len(data)} bytes: {data[:160]!r}")
    print(f"{total['inputs']:,} inputs, {total['finds']} finds")
    sys.stdout.flush()
    return 1 if total["finds"] else 0
