"""Costs of models: measured times, and estimates that are the same on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.cache_entries import add_checksum
from onnxgate.core.findings import ALL_STAGES
from onnxgate.core.jobs import Export, Load, Probe
from onnxgate.core.report import Cell, Report, ReportedModel
from onnxgate.gate.sharding import plan
from onnxgate.gate.sharding.plan import save_measured_costs
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel, plan_models
from onnxgate.runtimes.worker_spec import JobMeter
from tests.harness.locks import MODEL
from tests.harness.sharded_outcomes import PATHS, make_project, request_of

ALL = frozenset(ALL_STAGES)
SHA256 = MODEL.sha256


@pytest.fixture
def planned(tmp_path: Path) -> tuple[tuple[PlannedModel, ...], Lock]:
    """Return the plan of five models, one of which is locked, and the lock."""
    request = request_of(make_project(tmp_path), ALL)
    lock = Lock(targets=request.lock.targets, models={"d.onnx": MODEL})
    return plan_models(request.project, lock, request.models), lock


def test_costs_round_trip(tmp_path: Path) -> None:
    """Stored costs are loaded again, and the latest measurement replaces earlier ones."""
    for seconds in (1.0, 2.5):
        plan.save_costs(tmp_path / "costs", SHA256, {"onnxruntime 1.18.1": seconds})

    assert {"onnxruntime 1.18.1": 2.5} == plan.load_costs(tmp_path / "costs", SHA256)
    assert [SHA256] == [path.name for path in (tmp_path / "costs").iterdir()]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"x": "y"}', b'{"x": -1}', b'{"x": 1e300}', b"\xff"])
def test_damaged(tmp_path: Path, content: bytes) -> None:
    """An invalid costs file is treated as missing."""
    (tmp_path / SHA256).write_bytes(add_checksum(SHA256, content))

    assert {} == plan.load_costs(tmp_path, SHA256)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """If the cache is not writable, nothing is stored and no error is raised."""
    (tmp_path / "costs").write_text("")
    plan.save_costs(tmp_path / "costs", SHA256, {"x": 1.0})

    assert {} == plan.load_costs(tmp_path / "costs", SHA256)


@pytest.mark.parametrize("name", ["../out", "x", "", f"{SHA256}\n", SHA256.upper()])
def test_invalid_digest_is_not_a_path(tmp_path: Path, name: str) -> None:
    """A report may contain any name as a digest, so a path outside of the folder is neither read nor written."""
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
    (tmp_path / "out").write_bytes(b'{"x": 1}')
    plan.copy_costs(tmp_path / "theirs", tmp_path / "ours", [name])
    plan.save_costs(tmp_path / "ours", name, {"x": 2.0})

    assert {} == plan.load_costs(tmp_path / "ours", name)
    assert [] == list((tmp_path / "ours").iterdir())
    assert b'{"x": 1}' == (tmp_path / "out").read_bytes()


def test_what_is_large_or_a_link(tmp_path: Path) -> None:
    """Large files and links are not read."""
    (tmp_path / SHA256).write_bytes(add_checksum(SHA256, b'{"x":1.0}' + b" " * plan.MAX_COST_FILE_BYTES))
    large = plan.load_costs(tmp_path, SHA256)
    (tmp_path / SHA256).write_bytes(add_checksum(SHA256, b'{"x":1.0}'))
    (tmp_path / ("b" * 64)).symlink_to(tmp_path / SHA256)

    assert ({}, {}, {"x": 1.0}) == (large, plan.load_costs(tmp_path, "b" * 64), plan.load_costs(tmp_path, SHA256))


def test_reused_runs_keep_their_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reused runs keep their earlier cost; if it is unknown, the partial time of this check is not stored."""
    monkeypatch.setenv("ONNXGATE_KEPT_DIR", str(tmp_path / "kept"))
    model = ReportedModel(path="a.onnx", sha256=SHA256)
    cells = tuple(Cell(model="a.onnx", runtime=name, state="pass") for name in ("r", "s", "t"))
    listed = dict.fromkeys(("stages", "runtimes", "findings", "undecided", "skipped", "measured"), ())
    words = dict.fromkeys(("onnxgate", "folder", "scope"), "")
    report = Report(verdict="pass", exit=0, counts={}, models=(model,), cells=cells, **words, **listed)
    plan.save_costs(tmp_path / "kept" / "costs", SHA256, {"r": 8.0})
    spent = {str(tmp_path / "a.onnx"): {"r": 1.0, "s": 2.0, "t": 4.0, "python": 16.0}}
    save_measured_costs(report, tmp_path, spent, [(str(tmp_path / "a.onnx"), "r"), (str(tmp_path / "a.onnx"), "s")])

    assert {"r": 8.0, "t": 4.0, "toolchain": 16.0} == plan.load_costs(tmp_path / "kept" / "costs", SHA256)


def test_estimates_depend_only_on_config_and_lock(
    planned: tuple[tuple[PlannedModel, ...], Lock], tmp_path: Path
) -> None:
    """Estimates depend only on config and lock; a model with more runtimes costs more."""
    estimates = plan.estimate_costs_ms(*planned)

    assert plan.combine_costs_ms(*planned, tmp_path) == (estimates, 0)
    assert set(PATHS) == set(estimates)
    assert estimates["a.onnx"] > estimates["b.onnx"]


def test_measured_in_place_of_estimates(planned: tuple[tuple[PlannedModel, ...], Lock], tmp_path: Path) -> None:
    """Measured costs replace estimates; other estimates are scaled by the ratio of measured to estimated cost."""
    estimates = plan.estimate_costs_ms(*planned)
    names = [runtime.name for runtime in next(each for each in planned[0] if each.path == "d.onnx").runtimes]
    plan.save_costs(tmp_path, SHA256, {names[0]: 100.0, "of no target": 1000.0})
    weights, measured = plan.combine_costs_ms(*planned, tmp_path)

    assert measured == 1
    assert 100_000 * len(names) <= weights["d.onnx"] < 100_000 * len(names) + 100
    assert all(weights[path] > 100 * estimates[path] for path in PATHS)


def load(model: str) -> Load:
    """Return a job for a file."""
    return Load(model=model)


def test_metered() -> None:
    """Time is assigned to the current model, even if the job names another file."""
    meter = JobMeter()
    meter.begin("r", load("/a.onnx"))(1.0)
    with meter.attribute_to("/b.onnx"):
        meter.begin("r", load("/scratch/node.onnx"))(2.0)
        with meter.attribute_to("/c.onnx"):
            meter.begin("r", load("/scratch/node.onnx"))(4.0)
        later = meter.begin("s", load("/scratch/node.onnx"))
    later(8.0)
    meter.begin("r", Probe())(16.0)

    assert {"/a.onnx": {"r": 1.0}, "/b.onnx": {"r": 2.0, "s": 8.0}, "/c.onnx": {"r": 4.0}} == meter.seconds()


def test_second_exports_are_metered() -> None:
    """Repeated exports are submitted from other threads, so their time is assigned by the source."""
    meter, job = JobMeter(), Export(source="x.py:build", output="/o", folder="/f", opset=None, ir_version_max=None)
    meter.begin("toolchain", job)(1.0)
    with meter.attribute_to("/a.onnx"):
        meter.begin("toolchain", job)(2.0)
    meter.begin("second export", job)(4.0)

    assert {"/a.onnx": {"toolchain": 2.0, "second export": 4.0}} == meter.seconds()
