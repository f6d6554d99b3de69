"""Run inputs in supervised child processes. A crash or a hang affects only one input, and counts as a failure."""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.fuzz.mutation_kinds import Input
from campaigns.fuzz.reader_checks import Bench, Find, limit_memory

HANG_S = 5.0
"""CPU time after which a reader counts as hanging; inputs have only some kilobytes."""
ASLEEP = 12
"""A reader also counts as hanging if the elapsed time exceeds the CPU time limit by this factor."""
HANG_S_PER_MB = 20.0
BATCH = 2000
"""Number of inputs per child process; a new child process starts with little memory."""
_LOOK_S = 0.05
_SLOT = struct.Struct("<qqddq")  # current input, reader, start by wall and CPU time, and size
_FINISHED = 0


@dataclass(frozen=True, slots=True)
class Discovery:
    """A failure and the input that caused it."""

    index: int
    kind: str
    find: Find


@dataclass(slots=True)
class Result:
    """Result of a run."""

    inputs: Counter[str] = field(default_factory=Counter)  # by kind
    found: list[Discovery] = field(default_factory=list)
    seconds: float = 0.0
    slowest: tuple[float, int, str] = (0.0, -1, "")

    @property
    def count(self) -> int:
        """Number of checked inputs."""
        return sum(self.inputs.values())


@dataclass(frozen=True, slots=True)
class Run:
    """Inputs to check: `make(index)` for each index below `count`."""

    make: Callable[[int], Input]
    count: int
    jobs: int = 1
    bench: Callable[[Path], Bench] = Bench
    time_s: float = float("inf")
    hang_s: float = HANG_S
    batch: int = BATCH


def supervise(run: Run) -> Result:
    """Check all inputs in `jobs` parallel processes. Ctrl-C returns the result so far."""
    result = Result()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    lanes = [_Lane(run, lane, folder / str(lane), result) for lane in range(run.jobs)]
    try:
        while sum(lane.step() for lane in lanes):
            if time.monotonic() - began > run.time_s:
                break
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        pass
    finally:
        for lane in lanes:
            lane.end()
        shutil.rmtree(folder, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


class _Lane:
    """Run every `jobs`-th input, in consecutive child processes."""

    def __init__(self, run: Run, lane: int, folder: Path, result: Result) -> None:
        self._run, self._folder, self._result = run, folder, result
        self._next = lane
        self._pid = 0
        self._memory = mmap.mmap(-1, _SLOT.size)
        folder.mkdir(parents=True)
        self._log = folder / "finds"
        self._read = 0

    def step(self) -> bool:
        """Check on the child process; return whether there is more to do."""
        if self._pid:
            self._watch()
        if not self._pid and self._next < self._run.count:
            self._start()
        return bool(self._pid)

    def end(self) -> None:
        """Kill the child, if it exists."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._gather()
            self._pid = 0

    def _start(self) -> None:
        _SLOT.pack_into(self._memory, 0, self._next, -1, time.monotonic(), 0, 0)
        self._log.write_text("")
        self._read = 0
        self._pid = os.fork()
        if not self._pid:
            self._work()

    def _work(self) -> None:
        """Run in the child."""
        status = 1
        try:
            os.setpgid(0, 0)
            limit_memory()
            trace = (self._folder / "trace").open("w")
            faulthandler.enable(trace, all_threads=False)
            faulthandler.register(signal.SIGUSR1, trace, all_threads=False)
            bench = self._run.bench(self._folder / "bench")
            with self._log.open("a") as log:
                for index in range(self._next, self._run.count, self._run.jobs)[: self._run.batch]:
                    self._one(bench, index, log.write)
                    log.flush()
            status = _FINISHED
        except BaseException:  # noqa: BLE001 - the child ends here
            traceback.print_exc()
        finally:
            os._exit(status)

    def _one(self, bench: Bench, index: int, write: Callable[[str], object]) -> None:
        began = time.monotonic()
        _SLOT.pack_into(self._memory, 0, index, -1, began, time.process_time(), 0)
        given = self._run.make(index)
        size = len(given.data)

        def at(number: int) -> None:
            _SLOT.pack_into(self._memory, 0, index, number, time.monotonic(), time.process_time(), size)

        bench.at = at
        for find in bench.look(given.data):
            write(json.dumps([index, given.kind, find.reader, find.what, find.detail]) + "\n")
        _SLOT.pack_into(self._memory, 0, index, -2, time.monotonic(), time.process_time(), 0)
        write(json.dumps([index, given.kind, round(time.monotonic() - began, 4)]) + "\n")

    def _watch(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        index, reader, since, computed, size = self._at_work()
        if pid:
            self._pid = 0
            self._gather()
            if os.waitstatus_to_exitcode(status) != _FINISHED:
                self._record_crash(index, reader, f"ended by {_name(os.waitstatus_to_exitcode(status))}")
            else:
                self._next = index + self._run.jobs
        elif self._hangs(since, computed, self._run.hang_s + HANG_S_PER_MB * size / 1e6):
            os.kill(self._pid, signal.SIGUSR1)  # prints its current line
            time.sleep(_LOOK_S)
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
            self._gather()
            self._record_crash(index, reader, "hangs")

    def _at_work(self) -> tuple[int, int, float, float, int]:
        """Return the child's status; read again if it was being written."""
        while (first := _SLOT.unpack_from(self._memory)) != _SLOT.unpack_from(self._memory) or not first[2]:
            pass
        return first

    def _hangs(self, since: float, computed: float, most_s: float) -> bool:
        elapsed = time.monotonic() - since
        return elapsed > most_s and (elapsed > most_s * ASLEEP or _computed_s(self._pid) - computed > most_s)

    def _record_crash(self, index: int, reader: int, what: str) -> None:
        """Record that the current input crashed the child process."""
        readers = [*self._run.bench(self._folder / "names").readers]
        name = readers[reader] if 0 <= reader < len(readers) else "making the input"
        kind = self._run.make(index).kind
        self._result.inputs[kind] += 1
        where = _innermost((self._folder / "trace").read_text(errors="replace"))
        self._result.found.append(Discovery(index, kind, Find(name, what, where)))
        self._next = index + self._run.jobs

    def _gather(self) -> None:
        for line in self._log.read_text().splitlines():
            match json.loads(line):
                case [index, kind, reader, what, detail]:
                    self._result.found.append(Discovery(index, kind, Find(reader, what, detail)))
                case [index, kind, seconds]:
                    self._result.inputs[kind] += 1
                    self._result.slowest = max(self._result.slowest, (seconds, index, kind))


def _innermost(trace: str) -> str:
    """Return the Python line that a process was executing."""
    return next((line.strip() for line in trace.splitlines() if line.lstrip().startswith("File ")), "")


def _computed_s(pid: int) -> float:
    """Return the CPU time of a process."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


def _name(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"
