"""Tolerances measured with real PyTorch sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from onnxgate import rules
from onnxgate.commands.measurement import Measurement, describe_noise, measure_source_tolerances
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.lock.types import MeasuredTolerance
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from tests.conftest import ROOT

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a copy of the quickstart project."""
    folder = tmp_path_factory.mktemp("measuring") / "quickstart"
    shutil.copytree(ROOT / "fixtures" / "projects" / "quickstart", folder)
    (folder / ".git").mkdir()
    return load_config(folder / "onnxgate.toml", rule_ids=frozenset(rules.by_id))


def measured(project: Project, toolchain: Path, cache: Path) -> Measurement[MeasuredTolerance]:
    """Return the tolerances measured with the real toolchain."""
    settings = msgspec.structs.replace(project.config.toolchain, python=str(toolchain))
    project.config = msgspec.structs.replace(project.config, toolchain=settings)
    with WorkerPool(Environments(cache, offline=True), jobs=1) as host:
        return measure_source_tolerances(project, project.models(), host)


def test_measures_every_output(project: Project, toolchain: Path, tmp_path: Path) -> None:
    """Each output has a small positive noise, and the bound is derived from it."""
    actual = measured(project, toolchain, tmp_path)
    noises = {f"{path}: {name}": each for path, outputs in actual.figures.items() for name, each in outputs.items()}

    assert actual.notes == []
    assert sorted(noises) == [
        "models/classifier.onnx: scores",
        "models/encoder.onnx: last_hidden_state",
        "models/encoder.onnx: pooled",
    ]
    assert all(0 < noise_estimate.noise < 1e-4 for noise_estimate in noises.values())
    assert all(noise_estimate.bound >= max(8 * noise_estimate.noise, 1e-6) for noise_estimate in noises.values())


def test_unmeasured_models_are_reported(project: Project, toolchain: Path, tmp_path: Path) -> None:
    """A model that is not fetched is reported, and the other models are measured."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 5\n"
    model = project.folder / "models" / "encoder.onnx"
    content = model.read_bytes()
    model.write_text(pointer)
    try:
        actual = measured(project, toolchain, tmp_path)
    finally:
        model.write_bytes(content)

    assert (list(actual.figures), actual.notes) == (
        ["models/classifier.onnx"],
        ["`models/encoder.onnx` was not measured: it is a Git LFS pointer"],
    )


def test_nothing_to_measure(tmp_path: Path) -> None:
    """A project without sources has a note and needs no toolchain."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.onnx").write_bytes((ROOT / "fixtures/projects/quickstart/models/classifier.onnx").read_bytes())
    (tmp_path / "onnxgate.toml").write_text('models = ["*.onnx"]\n[targets.a]\nruntime = "onnxruntime"\n')
    project = load_config(tmp_path / "onnxgate.toml")
    with WorkerPool(Environments(tmp_path / "cache", offline=True), jobs=1) as host:
        source_tolerances = measure_source_tolerances(project, project.models(), host)

    assert (source_tolerances.figures, source_tolerances.notes) == (
        {},
        ["no model has a `source`; nothing was measured"],
    )


def test_selected_items_are_not_called_ill_conditioned() -> None:
    """Items that rounding errors move have no tolerance by position, but checks compare them nevertheless."""
    noise = NoiseMeasurement(ill_conditioned=dict.fromkeys(("boxes", "y"), MeasuredTolerance(noise=50.0, bound=400.0)))
    moved, ill_conditioned = describe_noise("m.onnx", noise, {"boxes", "labels"})

    assert "no tolerance was recorded for `boxes` of `m.onnx`" in moved
    assert "output `y` of `m.onnx` is ill-conditioned" in ill_conditioned
