"""The one folder that a worker may write to, and how what it wrote gets from there to where it is wanted."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from dataclasses import asdict
from pathlib import Path

import msgspec

from onnxgate.runtimes.jobs import CaseResult, Completed, Harvest, HarvestResult, Job, Observation, Run, RunResult
from onnxgate.runtimes.rights import Rights
from onnxgate.runtimes.whole import is_whole_file
from onnxgate.scratch import kept_folder


class ForgedError(Exception):
    """The worker left something else than the arrays that it names."""


class Room:
    """A seat's own folder. No worker sees that of another, nor what the gate itself has written."""

    def __init__(self) -> None:
        self._folder = kept_folder()
        self.folder = (self._folder / "work").absolute()
        """Its worker's home, and all that it may write to."""
        self.folder.mkdir()

    def say(self, rights: Rights) -> Path:
        """The file that tells the worker what it keeps; it lies where the worker cannot write."""
        file = self.folder.with_name("rights.json")
        said = {**asdict(rights), "reads": sorted(rights.reads), "folder": str(self.folder)}
        file.write_bytes(msgspec.json.encode(said))
        return file

    def inside(self, job: Job) -> Job:
        """The job with its output in this folder."""
        match job:
            case Run():
                return msgspec.structs.replace(job, output=str(self._new()))
            case Harvest():
                return msgspec.structs.replace(job, output=str(self._new() / Path(job.output).name))
            case _:
                return job

    def deliver(self, observation: Observation, inside: Job, job: Job) -> Observation:
        """What was observed, with its files where the job wants them.

        Raises:
            ForgedError: one of them is no plain file, or no whole array.
            OSError: one of them cannot be moved.
        """
        try:
            match observation, inside, job:
                case Completed(result=RunResult() as result), Run(), Run():
                    cases = tuple(_moved_case(case, Path(inside.output), Path(job.output)) for case in result.cases)
                    return Completed(result=msgspec.structs.replace(result, cases=cases))
                case Completed(result=HarvestResult()), Harvest(), Harvest():
                    _move(Path(inside.output), Path(job.output))
            return observation
        finally:
            self._forget(inside)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _new(self) -> Path:
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir()
        return folder

    def _forget(self, inside: Job) -> None:
        match inside:
            case Run():
                shutil.rmtree(inside.output, ignore_errors=True)
            case Harvest():
                shutil.rmtree(Path(inside.output).parent, ignore_errors=True)


def _moved_case(case: CaseResult, source: Path, target: Path) -> CaseResult:
    paths = tuple(None if path is None else _moved(Path(path), source, target) for path in case.outputs)
    return msgspec.structs.replace(case, outputs=paths)


def _moved(path: Path, source: Path, target: Path) -> str:
    if not path.is_relative_to(source) or ".." in path.parts:
        raise ForgedError
    place = target / path.relative_to(source)
    place.parent.mkdir(parents=True, exist_ok=True)
    _move(path, place)
    if not is_whole_file(place):
        raise ForgedError
    return str(place)


def _move(file: Path, place: Path) -> None:
    if not stat.S_ISREG(os.lstat(file).st_mode):
        raise ForgedError
    shutil.move(file, place)
