"""Run onnx's C++ code on hostile models in the same child processes as `check`: a crash affects one model."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.fuzz.mutation_kinds import Input
from campaigns.fuzz.seed_models import furnish
from onnxgate.core.findings import Place
from onnxgate.core.process_pool import Call, CallFailure, CallLimits, ProcessPool
from onnxgate.gate.static import FileQuery, read_model_file
from onnxgate.project.config.project import MergedSettings, SelectedModel

TIME_S = 10
MEMORY_BYTES = 4 * 2**30
SHARE = 256
"""Number of models per batch."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A model that crashed its child process."""

    index: int
    kind: str
    asked: str
    how: str


@dataclass(slots=True)
class Answers:
    """Result of a campaign."""

    inputs: Counter[str] = field(default_factory=Counter)  # by kind
    answered: Counter[str] = field(default_factory=Counter)  # by function
    lost: list[Loss] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> list[Loss]:
        """Failures of onnxgate: errors from onnx that were raised instead of reported."""
        return [each for each in self.lost if each.how.startswith("raised")]


def ask(make: Callable[[int], Input], count: int, jobs: int, time_s: float = float("inf")) -> Answers:
    """Check every model as `check` does, and also run other C++ code of onnx on it."""
    answers = Answers()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    furnish(folder)
    try:
        with ProcessPool(jobs) as children:
            for start in range(0, count, SHARE):
                if time.monotonic() - began > time_s:
                    break
                _share(children, folder, [make(index) for index in range(start, min(start + SHARE, count))], answers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answers.seconds = time.monotonic() - began
    return answers


def _share(children: ProcessPool, folder: Path, inputs: list[Input], answers: Answers) -> None:
    calls = list(_calls(folder, inputs))
    for (given, name, _), answer in zip(calls, children.run([call for _, _, call in calls]), strict=True):
        if isinstance(answer, CallFailure):
            answers.lost.append(Loss(given.index, given.kind, name, f"{answer.how}: {answer.words}"))
        else:
            answers.answered[name] += 1
    answers.inputs.update(given.kind for given in inputs)


def _calls(folder: Path, inputs: list[Input]) -> Iterator[tuple[Input, str, Call[object, object]]]:
    bounds = CallLimits(TIME_S, MEMORY_BYTES)
    for number, given in enumerate(inputs):
        path = folder / f"{number}.onnx"
        path.write_bytes(given.data)
        yield given, "check", Call(_checked, path, None, bounds)
        for name, part in PARTS.items():
            yield given, name, Call(part, given.data, str | None, bounds)


def _checked(path: object) -> object:
    """Run the checks of the file stage as its child processes do."""
    assert isinstance(path, Path)
    read_model_file(FileQuery(SelectedModel(path.name, path, MergedSettings(), Place(path.name))))
    return None


def _tried(part: Callable[[bytes], object]) -> Callable[[object], object]:
    """Ignore errors; only a crash of the process is a failure."""

    def tried(data: object) -> object:
        assert isinstance(data, bytes)
        try:
            part(data)
        except Exception as error:  # noqa: BLE001 - an answer
            return type(error).__name__
        return ""

    return tried


def checker(data: object) -> object:
    """Run `onnx.checker` with all checks."""
    from onnx import checker as onnx_checker

    return _tried(lambda each: onnx_checker.check_model(each, full_check=True))(data)


def inference(data: object) -> object:
    """Run strict shape inference."""
    from onnx import shape_inference

    return _tried(lambda each: shape_inference.infer_shapes(each, check_type=True, strict_mode=True, data_prop=True))(
        data
    )


def conversion(data: object) -> object:
    """Run the version converter."""
    from onnx import ModelProto, version_converter

    return _tried(lambda each: version_converter.convert_version(ModelProto.FromString(each), 21))(data)


def text(data: object) -> object:
    """Run the parser of ONNX text on the model's text and bytes."""
    from onnx import ModelProto, parser, printer

    _tried(lambda each: parser.parse_model(printer.to_text(ModelProto.FromString(each))))(data)
    return _tried(lambda each: parser.parse_model(each.decode("latin-1")))(data)


def inlining(data: object) -> object:
    """Run the inliner of local functions."""
    from onnx import ModelProto, inliner

    return _tried(lambda each: inliner.inline_local_functions(ModelProto.FromString(each)))(data)


PARTS: dict[str, Callable[[object], object]] = {
    "checker": checker,
    "inference": inference,
    "conversion": conversion,
    "text": text,
    "inlining": inlining,
}
