"""Read invalid input with every reader except the model readers: only documented errors may be raised."""

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
"""Time limit of a reader; inputs have only some kilobytes."""
LIMIT_BYTES = 6 * 2**30
"""Address space limit that detects unbounded allocations."""


@dataclass(frozen=True)
class Reader:
    """One reader: valid inputs, a function that reads an input in an empty folder, and the errors that it may raise."""

    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes, Path], object]
    faults: tuple[type[Exception], ...] = ()
    make: Callable[[Random, bytes], bytes] | None = None  # its own mutation, used for some of the inputs


@dataclass
class Result:
    """Counts and failures of one reader."""

    name: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    finds: dict[str, bytes] = field(default_factory=dict)  # failure -> input


class TooLongError(BaseException):
    """The reader exceeded its time limit."""


def fuzz(reader: Reader, count: int, seed: int) -> Result:
    """Run a reader on mutations of its seeds."""
    random, seeds, result = Random(f"{reader.name} {seed}"), reader.seeds(), Result(reader.name)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onnxgate-hostile-") as scratch:
        for index in range(count):
            data = _made(random, reader, random.choice(seeds), seeds) if index >= len(seeds) else seeds[index]
            result.inputs += 1
            problem = failure(reader, data, Path(scratch))
            result.accepted += problem is None
            if problem:
                result.finds.setdefault(problem, data)
    result.seconds = time.monotonic() - began
    return result


def _made(random: Random, reader: Reader, seed: bytes, seeds: tuple[bytes, ...]) -> bytes:
    if reader.make is not None and random.random() < 0.6:
        return reader.make(random, seed)
    return mutations.of_bytes(random, seed, seeds)


def failure(reader: Reader, data: bytes, scratch: Path) -> str | None:
    """Return the failure of a reader; "" if it rejected the input as documented, None if it accepted it."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    try:
        reader.read(data, scratch)
    except reader.faults as fault:
        return "" if str(fault) else f"a {type(fault).__name__} without a message"
    except (Exception, TooLongError) as error:  # noqa: BLE001 - any exception is a failure
        place = traceback.extract_tb(error.__traceback__)[-1]
        ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/onnxgate/" in frame.filename]
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
        return fuzz(next(reader for reader in READERS if reader.name == name), count, seed)


def _run_job(job: tuple[str, int, int]) -> Result:
    return _one(*job)


def main(count: int, seed: int, jobs: int, only: str) -> int:
    """Run all readers; return 1 if one failed."""
    from campaigns.hostile.reader_inputs import READERS

    jobs_to_run = [(reader.name, count, seed) for reader in READERS if only in reader.name]
    total: Counter[str] = Counter()
    with Pool(jobs, maxtasksperchild=1) as pool:
        for result in pool.imap_unordered(_run_job, jobs_to_run):
            refused = result.inputs - result.accepted
            print(
                f"{result.name:22} {result.inputs:>8,} inputs, {refused:>8,} refused, {result.seconds:6.1f} s",
                flush=True,
            )
            total.update(inputs=result.inputs, finds=len([problem for problem in result.finds if problem]))
            for how, data in result.finds.items():
                if how:
                    print(f"    FOUND {how}\n      {len(data)} bytes: {data[:160]!r}")
    print(f"{total['inputs']:,} inputs, {total['finds']} failures")
    sys.stdout.flush()
    return 1 if total["finds"] else 0
