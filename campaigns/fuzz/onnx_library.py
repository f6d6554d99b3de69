"""onnx's own C++ on hostile models, in the children that production has: a crash there costs one model."""

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
"""So many models are written and asked about at once."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A model that took its child with it."""

    index: int
    kind: str
    asked: str
    how: str


@dataclass(slots=True)
class Answers:
    """What came of all."""

    inputs: Counter[str] = field(default_factory=Counter)  # by kind
    answered: Counter[str] = field(default_factory=Counter)  # by who was asked
    lost: list[Loss] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> list[Loss]:
        """Those that are our own: whatever onnx does, we say it and do not raise."""
        return [each for each in self.lost if each.how.startswith("raised")]


def ask(make: Callable[[int], Input], count: int, jobs: int, time_s: float = float("inf")) -> Answers:
    """Have every model judged as `check` does, and put through the rest of onnx's C++."""
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
    """The file stage's whole look, as its children have it."""
    assert isinstance(path, Path)
    read_model_file(FileQuery(SelectedModel(path.name, path, MergedSettings(), Place(path.name))))
    return None


def _tried(part: Callable[[bytes], object]) -> Callable[[object], object]:
    """Whatever it raises is an answer: only what ends the process is none."""

    def tried(data: object) -> object:
        assert isinstance(data, bytes)
        try:
            part(data)
        except Exception as error:  # noqa: BLE001 - an answer
            return type(error).__name__
        return ""

    return tried


def checker(data: object) -> object:
    """`onnx.checker`, in full, on the model as it is."""
    from onnx import checker as onnx_checker

    return _tried(lambda each: onnx_checker.check_model(each, full_check=True))(data)


def inference(data: object) -> object:
    """Shape inference, strict."""
    from onnx import shape_inference

    return _tried(lambda each: shape_inference.infer_shapes(each, check_type=True, strict_mode=True, data_prop=True))(
        data
    )


def conversion(data: object) -> object:
    """The converter of opsets."""
    from onnx import ModelProto, version_converter

    return _tried(lambda each: version_converter.convert_version(ModelProto.FromString(each), 21))(data)


def text(data: object) -> object:
    """The parser of ONNX text, on the model as text and on its bytes."""
    from onnx import ModelProto, parser, printer

    _tried(lambda each: parser.parse_model(printer.to_text(ModelProto.FromString(each))))(data)
    return _tried(lambda each: parser.parse_model(each.decode("latin-1")))(data)


def inlining(data: object) -> object:
    """The inliner of local functions."""
    from onnx import ModelProto, inliner

    return _tried(lambda each: inliner.inline_local_functions(ModelProto.FromString(each)))(data)


PARTS: dict[str, Callable[[object], object]] = {
    "checker": checker,
    "inference": inference,
    "conversion": conversion,
    "text": text,
    "inlining": inlining,
}
