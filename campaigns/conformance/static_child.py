"""Check models with the static stages and with onnx.checker, and record the results.

    python static_child.py load CORPUS.zip RELEASES FIRST RECORD

Like `child.py`, it writes one JSON line before and one after each model, because onnx may crash on invalid models.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path

import onnx

from onnxgate.model.validity import CheckedModel
from onnxgate.stages.file import read_checked_model
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import get_implementation


def load(corpus: str, releases: list[str], first: int, record: Path) -> None:
    """Check all models from index `first` on."""
    with (
        zipfile.ZipFile(corpus) as models,
        record.open("a", encoding="utf-8") as lines,
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder, "model.onnx")
        for index, name in enumerate(models.namelist()[first:], first):
            data = models.read(name)
            path.write_bytes(data)
            lines.write(json.dumps([index]) + "\n")
            lines.flush()
            lines.write(json.dumps([index, json.dumps(describe(path, data, releases))]) + "\n")
            lines.flush()


def describe(path: Path, data: bytes, releases: list[str]) -> dict[str, object]:
    """Return the fault of a model, the refusals that are predicted for each release, and the error of the checker."""
    content, checker = read_checked_model(path), check_fully(data)
    if content is None:
        return {"fault": "not a model", "predicted": {}, "checker": checker}
    fault = content.fault
    return {
        "fault": fault.message if fault and not fault.harmless else "",
        "unchecked": content.unchecked,
        "predicted": predictions(content, releases),
        "checker": checker,
    }


def predictions(content: CheckedModel, releases: list[str]) -> dict[str, list[str]]:
    """Return the predicted verdict and its reasons by release."""
    typed = infer_model_types(content.view, content.inferred)
    found = {}
    for release in releases:
        implementation, limits = get_implementation(release), get_limits(release)
        assert limits is not None
        prediction = predict(typed, implementation, limits)
        reasons = [f"{it.miss.rule}: {it.miss.problem}" if it.miss else it.unknown for it in prediction.found]
        found[release] = [prediction.verdict, *reasons[:2]]
    return found


def check_fully(data: bytes) -> str:
    """Return the error of `onnx.checker` with `full_check`; "" if it accepts the model."""
    try:
        onnx.checker.check_model(data, full_check=True)
    except Exception as error:  # noqa: BLE001
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    load(sys.argv[2], sys.argv[3].split(","), int(sys.argv[4]), Path(sys.argv[5]))
