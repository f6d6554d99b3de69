"""Operators whose support differs between releases, including patch releases: predictions compared with real loads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx.parser
import pytest
from packaging.version import Version

from campaigns.conformance import corpora, environments
from campaigns.conformance.real_loads import observed
from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types
from tests.harness.release_differences import NAMED

RELEASES = sorted({release for _, release, _ in NAMED}, key=Version)

pytestmark = pytest.mark.index


def read_cases(release: str) -> Iterator[tuple[str, onnx.ModelProto, str]]:
    """Yield the cases of a release: name, model and outcome."""
    for index, (text, where, expected) in enumerate(NAMED):
        if where == release:
            yield f"{index:03}", onnx.parser.parse_model(text), expected


@pytest.mark.parametrize("release", RELEASES)
def test_listed_operators_behave_as_predicted(release: str, shared_folder: Path) -> None:
    """Prediction, real load and the recorded outcome agree."""
    home = environments.cache(shared_folder / "conformance")
    known = limits.get_limits(release)
    assert known is not None
    cases = list(read_cases(release))
    corpus = corpora.write({name: model.SerializeToString() for name, model, _ in cases}, home / f"named-{release}.zip")
    texts = observed(environments.python_of(release, home), corpus, home / f"named-{release}.json")

    predicted = [
        predict(infer_model_types(ModelView(model)), operators.get_implementation(release), known).verdict
        for _, model, _ in cases
    ]

    expected = [what for _, _, what in cases]
    assert (expected, expected) == (predicted, ["refused" if texts[name] else "loads" for name, _, _ in cases])
