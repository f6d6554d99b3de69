"""Predictions for one model: on which releases it loads, as `onnxgate matrix` shows."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from onnxgate.api.errors import ArgumentError, raise_argument_errors, require_type
from onnxgate.core.matrix import Predicted, Reason, render_reason
from onnxgate.core.text import join_command

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.gate.request import GateRequest

MEMORY_NAME = "model.onnx"
"""Name in messages of a model that is not a file."""
MESSAGE_WIDTH = 80
"""Width of error messages in columns. pytest indents them by 4 to 8, and Python puts the type of the error first."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one release loads a model."""

    runtime: str  # name of the release, such as "onnxruntime 1.18.1"
    verdict: Predicted  # "loads", "refused", or "unknown" if no prediction is possible
    reasons: tuple[Reason, ...] = ()  # why the release refuses the model, or why the verdict is unknown

    @property
    def engine(self) -> str:
        """Name of the engine, such as "onnxruntime"."""
        return self.runtime.rpartition(" ")[0]

    @property
    def release(self) -> str:
        """The exact release, such as "1.18.1"."""
        return self.runtime.rpartition(" ")[2]

    def __str__(self) -> str:
        reasons = "; ".join(map(_render_reason, self.reasons))
        return f"{self.runtime}: {self.verdict}{f': {reasons}' if reasons else ''}"


def _render_reason(reason: Reason) -> str:
    since = f" (works since {reason.works_since})" if reason.works_since else ""
    return f"{render_reason(reason)}{since}"


def predict(model: str | os.PathLike[str] | ModelProto, requirement: str = "onnxruntime") -> list[Prediction]:
    """
    Predict which releases load a model, as `onnxgate matrix` does. The releases are in ascending order.

    `model` is the path of a model, or an `onnx.ModelProto` that contains all its weights. `requirement` selects
    releases, as in `onnxruntime>=1.18`; by default, these are all known releases.

    A file that is not a model is refused. If a file cannot be read, for example because Git LFS did not fetch it, the
    verdicts are `unknown`. The model is read in this process; only C++ code of onnx runs in a child process, which is
    started once. `onnxgate matrix` also reads models in a child process, with limits of time and memory.

    Raises:
        ArgumentError: the requirement is invalid, no known release matches it, or the `ModelProto` has external data or
            cannot be serialized.
        OSError: there is no such file.
        TypeError: an argument has another type, for example None as requirement.
    """
    from onnxgate.commands.matrix_prediction import predict_matrix
    from onnxgate.gate import pipeline

    with _open_request(model, requirement) as request:
        (predicted,) = predict_matrix(pipeline.run(request))
    return [
        Prediction(runtime=entry.runtime, verdict=entry.predicted, reasons=entry.reasons)
        for entry in predicted.runtimes
    ]


def assert_supported(model: str | os.PathLike[str] | ModelProto, requirement: str) -> None:
    """
    Raise an `AssertionError` unless all releases that match the requirement load the model.

    It passes if `onnxgate check MODEL --target REQUIREMENT` passes, and the message is the output of that command. A
    prediction that is not possible is an error, too; the message names the command that loads the model instead.

    Raises:
        AssertionError: a release refuses the model, a prediction is not possible, or the model is invalid.
        ArgumentError, OSError, TypeError: as for `predict`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    if text := _describe_problems(model, requirement):
        raise AssertionError(text)


def _describe_problems(model: str | os.PathLike[str] | ModelProto, requirement: str) -> str:
    """Return why a model is not supported; "" if it is."""
    from onnxgate.commands.files_without_config import check_files
    from onnxgate.formats.support_matrix import format_text

    with _open_request(model, requirement) as request:
        checked = check_files(request, "error", drawn=False, target=requirement)
    if checked.report.verdict == "pass":
        return ""
    (path,) = (selected.path for selected in request.models)
    options = ("--target", requirement, "-v")
    details = f"`{join_command(('onnxgate', 'check'), path, options=options)}` lists all reasons and findings"
    return format_text(checked.matrix, has_table=False, required=True, width=MESSAGE_WIDTH, details=details).rstrip()


@contextmanager
def _open_request(model: str | os.PathLike[str] | ModelProto, requirement: str) -> Iterator[GateRequest]:
    """
    Yield the request to check a model in this process, without a cache.

    A `ModelProto` is written to a temporary file, so that its predictions are those of the saved model: they depend on
    weights, of which the reader selects the ones that matter.
    """
    require_type("requirement", requirement, str)
    if isinstance(model, (str, os.PathLike)):
        if not os.fspath(model):  # `Path` replaces it by the working directory
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), model)
        path = Path(model)
        path.stat()
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield _make_request(path, requirement, Path.cwd())
    elif _is_message(model):
        with tempfile.TemporaryDirectory(prefix="onnxgate-") as folder:
            Path(folder, MEMORY_NAME).write_bytes(_serialize(model))
            yield _make_request(Path(MEMORY_NAME), requirement, Path(folder))
    else:
        raise TypeError(f"expected a path or an `onnx.ModelProto`, got `{type(model).__name__}`")


def _make_request(path: Path, requirement: str, start: Path) -> GateRequest:
    from onnxgate.commands.files_without_config import make_request
    from onnxgate.gate.request import StaticSettings

    with raise_argument_errors():
        request = make_request([path], requirement, start, 0)
    return msgspec.structs.replace(request, static=StaticSettings())


def _is_message(model: object) -> TypeGuard[ModelProto]:
    return getattr(getattr(model, "DESCRIPTOR", None), "full_name", "") == "onnx.ModelProto"


def _serialize(model: ModelProto) -> bytes:
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

    if _has_external_data(model):  # the folder of the data is unknown
        raise ArgumentError("the model has external data that is not loaded; save the model, and pass its path")
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise ArgumentError(f"the model cannot be serialized ({error}); save it, and pass its path") from error


def _has_external_data(model: ModelProto) -> bool:
    from onnxgate.model.reading.file_format import UnreadableModel
    from onnxgate.model.reading.view import ModelView

    try:
        return bool(ModelView(model).external)
    except UnreadableModel:  # the prediction reports it
        return False
