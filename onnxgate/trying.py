"""A model with changes made, as a file of its own beside its data; the model itself is only read."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.config.project import Project, SelectedModel
from onnxgate.model.external import data_file, entries, is_external
from onnxgate.model.linking import link
from onnxgate.model.structure import read_structure, tensors
from onnxgate.plan import PlannedModel
from onnxgate.repair import Asked, Bounds, Change, Fix, Left
from onnxgate.repair.parts import write
from onnxgate.runtimes.host import Host
from onnxgate.runtimes.jobs import Command, CommandResult, Completed
from onnxgate.runtimes.seats import Seat
from onnxgate.stages.export_plan import highest_ir, ir_limit, opset_limit

if TYPE_CHECKING:
    from onnx import ModelProto

CHILD = Path(__file__).parent / "repair" / "child.py"
MOST_COPIED_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Trial:
    """A model with some changes made."""

    model: SelectedModel
    changes: tuple[tuple[Fix, Change], ...] = ()

    @property
    def renamed(self) -> dict[str, str]:
        """Outputs that have another name now."""
        return {old: new for _, change in self.changes for old, new in change.renamed.items()}


@dataclass(slots=True)
class Trying:
    """Asks fixes about one model, and makes what they propose. `scratch` is an empty folder."""

    planned: PlannedModel
    project: Project
    host: Host
    scratch: Path
    unsafe: bool
    left: list[tuple[str, Left]] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)  # why changes wait until they are asked for
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def tried(self, fixes: Sequence[Fix], rules: frozenset[str]) -> Trial:
        """The model with every change made, one upon the other.

        Raises:
            UnreadableModel: it is no model.
            OSError: it cannot be read, or its data are not all here.
        """
        trial = Trial(self.planned.model)
        for fix in fixes:
            match self._proposed(fix, trial, rules):
                case Change() as change if change.unsafe and not self.unsafe:
                    self.held_back.append(change.unsafe)
                case Change() as change:
                    trial = self._made(trial, fix, change)
                case Left() as left:
                    self.left.append((fix.name, left))
                case None:
                    pass
        return trial

    def _proposed(self, fix: Fix, trial: Trial, rules: frozenset[str]) -> Change | Left | None:
        path = trial.model.absolute
        return fix.propose(
            Asked(
                path=path,
                proto=read_structure(path),
                rules=rules,
                bounds=self._bounds(),
                root=root_of(self.project, self.planned.model),
                scratch=self._folder(),
                elsewhere=self._elsewhere,
            )
        )

    def _made(self, trial: Trial, fix: Fix, change: Change) -> Trial:
        name = self.planned.path
        place = self._folder() / (Path(name).name if Path(name).is_absolute() else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        write(change.parts, place)
        for location, file in _data(read_structure(place), trial.model.absolute).items():
            _lay(file, place.parent / location)
        return Trial(replace(self.planned.model, absolute=place), (*trial.changes, (fix, change)))

    def _bounds(self) -> Bounds:
        runtimes = [each.runtime for each in self.planned.runtimes]
        config = self.project.config
        pinned = (config.opset or {}).get("ai.onnx")
        return Bounds(
            ir_version=highest_ir(config.ir_version, ir_limit(runtimes)),
            opset=pinned if pinned is not None else opset_limit(runtimes),
            pinned=pinned is not None,
        )

    def _folder(self) -> Path:
        folder = self.scratch / str(next(self.numbers))
        folder.mkdir()
        return folder

    def _elsewhere(self, arguments: Sequence[str]) -> str:
        """Have ONNX's C++ code do something in a process of its own."""
        python = Path(sys.executable)
        job = Command(argv=(str(python), "-I", "-B", str(CHILD), *arguments), folder=str(self._folder()))
        match self.host.submit(Seat.of_interpreter("onnx", python), job).result():
            case Completed(result=CommandResult(status=0)):
                return ""
            case Completed(result=CommandResult(status=status, log=log)):
                return " ".join(log.split())[:300] or f"it ended with status {status}"
            case other:
                return str(getattr(other, "reason", "") or "it crashed, or did not end in time")


def root_of(project: Project, model: SelectedModel) -> Path:
    """The repository; of a file that lies outside of it, its folder."""
    return project.root if model.absolute.is_relative_to(project.root) else model.absolute.parent


def as_it_was(planned: PlannedModel, changes: Sequence[Change], folder: Path) -> Path:
    """The model's file; or a copy in a new folder with its data beside it, where no runtime would read them."""
    stand_in = next((change.stand_in for change in changes if change.stand_in), None)
    if stand_in is None:
        return planned.model.absolute
    folder.mkdir()
    place = folder / Path(planned.path).name
    write(stand_in.parts, place)
    for name, file in stand_in.data.items():
        _lay(file, folder / name)
    return place


def _data(proto: ModelProto, model: Path) -> dict[str, Path]:
    """The data files that a model needs beside it, by location."""
    locations = {entries(tensor).get("location", "") for _, tensor in tensors(proto) if is_external(tensor)}
    files = {location: data_file(model, location) for location in sorted(locations)}
    wrong = next((location for location, file in files.items() if file.problem), None)
    if wrong is not None:
        raise OSError(f"its external data `{wrong}` are not all here")
    return {location: file.path for location, file in files.items()}


def _lay(file: Path, to: Path) -> None:
    """A copy, since onnx refuses data that have two names; of what is large a second name, which runtimes take.

    Source: onnx 1.23, ONNX Runtime 1.16 to 1.31.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    if file.stat().st_size > MOST_COPIED_BYTES:
        link(file, to)
    else:
        shutil.copyfile(file, to)
