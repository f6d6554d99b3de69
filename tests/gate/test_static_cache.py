"""Unchanged models are not read again, and a change of anything that a result depends on invalidates it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from onnxgate.core import files, process_pool
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.evidence.file import ModelFile
from onnxgate.gate import pipeline, static, static_cache
from onnxgate.gate.request import GateOutcome, GateRequest, StaticSettings
from onnxgate.gate.static_cache import HarvestedBuilds, StaticResultCache
from onnxgate.model.reading import structure
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.model.reading.view import ModelView
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.lock.comparison import entry_from_facts
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.stages import file as file_stage
from onnxgate.stages.support import stage as support_stage
from onnxgate.support import limits, operators
from onnxgate.support.harvest import BuildSupport
from tests.harness.models import parse, write
from tests.harness.sharded_outcomes import make_project, request_of
from tests.model.reading.test_external_data import external_model

Counted = Callable[[], tuple[list[str], list[str]]]
MISH = "g (float[2] x) => (float[2] y) { y = Mish(x) }"
HEAD_22 = '<ir_version: 8, opset_import: ["" : 22]>\n'


@pytest.fixture
def request_(tmp_path: Path) -> GateRequest:
    """Return a static check of five models with a cache folder."""
    project = make_project(tmp_path / "project")
    return replace(
        request_of(project, frozenset(STATIC_STAGES)), static=StaticSettings(folder=lambda: tmp_path / "kept")
    )


NOT_JUDGING = {
    "inputs.axis_sizes": "names the axes in the config that no model has",
    "inputs.case_selection": "a default of the request",
    "runtimes.environments.storage": "names the folder of the cache",
    "runtimes.worker_spec": "names the environments of builds that are harvested",
}
"""Modules that child processes import but that do not affect static results."""
LIST_MODULES = """
import pickle, sys
from onnxgate.core.process_pool import CallLimits, _execute_call
from onnxgate.gate import static
static.defer_initialization()
for name, argument in pickle.load(open(sys.argv[1], "rb")):
    _execute_call(getattr(static, name), argument, CallLimits(60, 2**32))
print(*sys.modules)
"""


def list_child_modules(request: GateRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the modules that a child has loaded after the calls of a check."""
    calls: list[tuple[str, object]] = []

    def record(name: str) -> None:
        function = getattr(static, name)

        def recorded(argument: object) -> object:
            calls.append((name, argument))
            return function(argument)

        monkeypatch.setattr(static, name, recorded)

    record("read_model_file")
    pipeline.run(request)
    assert {name for name, _ in calls} == {"read_model_file"}
    (folder / "calls").write_bytes(pickle.dumps(calls))
    command = [sys.executable, "-c", LIST_MODULES, str(folder / "calls")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_the_key_has_all_code_that_judges(
    request_: GateRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result is not reused after a change of any module that the static stages load."""
    write(request_.models[1].absolute, parse(MISH, HEAD_22))
    loaded = list_child_modules(request_, tmp_path, monkeypatch)
    listed = [name.removeprefix("onnxgate.") for name in loaded if name.startswith("onnxgate.")]
    packages = {name for name in listed if any(other.startswith(f"{name}.") for other in listed)}
    modules = {name for name in listed if name not in packages}

    assert set(NOT_JUDGING) == {name for name in modules if name.partition(".")[0] not in static_cache._JUDGING_FOLDERS}


def test_a_child_does_not_initialize_onnx(
    request_: GateRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child starts in a fraction of the time of `import onnx`, most of which numpy takes."""
    loaded = list_child_modules(request_, tmp_path, monkeypatch)

    assert {"onnx.checker", "onnx.shape_inference"} <= set(loaded)
    assert sorted({"numpy", "onnx.helper"} & set(loaded)) == []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Return a function that returns the models read and predicted since its last call."""
    read: list[str] = []
    predicted: list[str] = []
    look, gather = file_stage.inspect_file, support_stage.collect_model_evidence

    def looked(model: SelectedModel) -> ModelFile:
        read.append(model.path)
        return look(model)

    def gathered(model: SelectedModel, *rest: object) -> object:
        predicted.append(model.path)
        return gather(model, *rest)  # type: ignore[arg-type]

    def since() -> tuple[list[str], list[str]]:
        actual = sorted(read), sorted(predicted)
        read.clear()
        predicted.clear()
        return actual

    monkeypatch.setattr(file_stage, "inspect_file", looked)
    monkeypatch.setattr(support_stage, "collect_model_evidence", gathered)
    return since


def test_a_model_is_parsed_once(request_: GateRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stage and the support stage share one parsed model."""
    read: list[str] = []
    view = structure.read_view

    def viewed(path: Path, **bounds: int) -> ModelView:
        read.append(path.name)
        return view(path, **bounds)

    monkeypatch.setattr(structure, "read_view", viewed)
    outcome = pipeline.run(request_)

    assert sorted(read) == sorted(model.absolute.name for model in request_.models)
    assert outcome.gathered.support.verdicts


def test_nothing_changed(request_: GateRequest, counted: Counted) -> None:
    """The second check reads nothing and has the same results."""
    first = pipeline.run(request_)
    asked = counted()
    second = pipeline.run(request_)

    assert asked == (paths(request_), paths(request_))
    assert counted() == ([], [])
    assert all_results(second) == all_results(first)


def test_harvested_support(request_: GateRequest, counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions from extracted support data are reused until extraction gives another result."""
    builds = HarvestedBuilds()
    for runtime in (runtime for target in request_.lock.targets.values() for runtime in target.runtimes):
        known = limits.load_limit_table().releases[runtime.release]
        support = BuildSupport(known, operators.get_implementation(runtime.release), "ab" * 32)
        builds.supports[runtime.name] = support
    monkeypatch.setattr(pipeline, "_load_custom_builds", lambda *_: builds)
    pipeline.run(request_)
    first = counted()
    pipeline.run(request_)
    same = counted()
    builds.supports |= {name: replace(support, sha256="cd" * 32) for name, support in builds.supports.items()}
    pipeline.run(request_)

    assert (first, same) == ((paths(request_), paths(request_)), ([], []))
    assert counted() == ([], paths(request_))


def test_a_fresh_analysis(request_: GateRequest, counted: Counted) -> None:
    """A fresh analysis reuses nothing, and its results are reused by the next one."""
    pipeline.run(request_)
    counted()
    pipeline.run(replace(request_, static=replace(request_.static, fresh=True)))
    rerun = counted()
    pipeline.run(request_)

    assert rerun == (paths(request_), paths(request_))
    assert counted() == ([], [])


def test_one_model_changed(request_: GateRequest, counted: Counted) -> None:
    """A changed model is read again even if its size and times are the same; the other models are not."""
    pipeline.run(request_)
    counted()
    changed = request_.models[1]
    before = changed.absolute.stat()
    content = changed.absolute.read_bytes()
    changed.absolute.write_bytes(content.replace(b"Relu", b"Tanh"))
    os.utime(changed.absolute, ns=(before.st_atime_ns, before.st_mtime_ns))

    outcome = pipeline.run(request_)

    assert content != changed.absolute.read_bytes()
    assert counted() == ([changed.path], [changed.path])
    assert outcome.gathered.facts[changed.path].operators == {"Tanh": 1}


@pytest.mark.parametrize("what", ["program", "rules", "runtimes", "damage"])
def test_program_rules_runtimes_and_damage_invalidate_results(
    request_: GateRequest, counted: Counted, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A different program, rule level or runtime, or a damaged entry, invalidates the results."""
    pipeline.run(request_)
    counted()
    match what:
        case "program":
            monkeypatch.setattr(static_cache, "_digest_program", lambda: ("another",))
        case "rules":
            config = request_.project.config
            request_.project.config = replace_rules(config, {"no-support-data": "off"})
        case "runtimes":
            fewer = {"old": request_.lock.targets["old"]}
            request_ = replace_lock(request_, type(request_.lock)(targets=fewer))
        case _:
            (kept,) = (tmp_path / "kept").glob("*.msgpack")
            kept.write_bytes(kept.read_bytes()[:-7])

    pipeline.run(request_)

    read, predicted = counted()
    assert predicted
    assert bool(read) == (what in ("program", "damage"))


def test_external_data(request_: GateRequest, counted: Counted) -> None:
    """A changed data file of the same size is read again, and a removed one is reported as missing."""
    data = write(request_.models[0].absolute, external_model()).with_name("w.bin")
    data.write_bytes(bytes(32))
    pipeline.run(request_)
    counted()
    pipeline.run(request_)
    untouched = counted()
    data.write_bytes(bytes(31) + b"\x01")
    pipeline.run(request_)
    touched = counted()
    data.unlink()
    outcome = pipeline.run(request_)

    assert untouched == ([], [])
    assert touched == ([request_.models[0].path], [request_.models[0].path])
    assert "external-data-missing" in {finding.rule for finding in outcome.findings}


def test_a_second_location_is_looked_up_again(request_: GateRequest, counted: Counted) -> None:
    """The prediction depends on a file that the facts of the model do not list."""
    model = external_model()
    entries = model.graph.initializer[0].external_data
    entries.insert(0, type(entries[0])(key="location", value="none.bin"))
    write(request_.models[0].absolute, model).with_name("w.bin").write_bytes(bytes(32))
    pipeline.run(request_)
    counted()
    pipeline.run(request_)

    assert counted() == ([], [request_.models[0].path])


def test_large_external_data_are_read_once(
    request_: GateRequest, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of a large data file is reused, even if the model itself is small."""
    monkeypatch.setattr(files, "_digests", {})
    monkeypatch.setattr(files, "SETTLED_NS", -(10**12))
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: True)  # a forked child inherits the patched function
    model = external_model()
    data = write(request_.models[0].absolute, model).with_name("w.bin")
    data.write_bytes(bytes(2 * 2**20))
    pipeline.run(with_jobs(request_, 1))
    counted()
    opened: list[Path] = []
    open_regular = files.open_regular
    monkeypatch.setattr(files, "_digests", {})
    monkeypatch.setattr(files, "open_regular", lambda path: opened.append(path) or open_regular(path))

    pipeline.run(request_)

    assert counted() == ([], [])
    assert data not in opened


def test_large_files_with_a_new_date_are_not_read_again(
    request_: GateRequest, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switching branches updates the timestamps of all files, and a copied file is only seconds old."""
    proto = external_model()
    proto.doc_string = "x" * 2 * 2**20
    model = write(request_.models[0].absolute, proto)
    data = model.with_name("w.bin")
    data.write_bytes(bytes(2 * 2**20))
    for path in (model, data):
        os.utime(path, (0, 0))
    monkeypatch.setattr(files, "SETTLED_NS", -(10**12))
    pipeline.run(request_)
    counted()
    monkeypatch.setattr(files, "SETTLED_NS", 10**12)
    for path in (model, data):
        path.touch()
        monkeypatch.setattr(files, "_digests", {})
        pipeline.run(request_)

    assert counted() == ([], [])


def test_a_pointer_is_not_answered_for_by_its_content(request_: GateRequest, counted: Counted) -> None:
    """A pointer has the same digest as its content, but different findings."""
    model = request_.models[0]
    content = model.absolute.read_bytes()
    entry = entry_from_facts(read_facts(model.absolute, model.path))
    request_ = replace_lock(request_, replace_models(request_.lock, {model.path: entry}))
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{entry.sha256}\nsize {entry.size_bytes}\n"

    for state in (pointer.encode(), content, pointer.encode()):
        model.absolute.write_bytes(state)
        assert all_results(pipeline.run(request_)) == all_results(
            pipeline.run(replace(request_, static=StaticSettings()))
        )


def test_model_changed_during_reading_is_not_cached(request_: GateRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a model changes while it is read, its results are not stored under the digest of the other content."""
    model = request_.models[1].absolute
    before = model.read_bytes()
    expected = all_results(pipeline.run(replace(request_, static=StaticSettings())))
    _changing(monkeypatch, file_stage, "inspect_file", model, before.replace(b"Relu", b"Tanh"))
    pipeline.run(request_)
    monkeypatch.undo()
    model.write_bytes(before)
    assert all_results(pipeline.run(request_)) == expected

    _changing(monkeypatch, support_stage, "collect_model_evidence", model, before.replace(b"Relu", b"Rulu"))
    pipeline.run(request_)
    monkeypatch.undo()
    model.write_bytes(before)
    assert all_results(pipeline.run(request_)) == expected


def _changing(monkeypatch: pytest.MonkeyPatch, module: object, name: str, path: Path, content: bytes) -> None:
    """Replace a file by another of the same size just before it is read."""
    function = getattr(module, name)

    def changed(*arguments: object) -> object:
        path.write_bytes(content)
        return function(*arguments)

    monkeypatch.setattr(module, name, changed)


def test_nowhere_to_keep(request_: GateRequest, tmp_path: Path, counted: Counted) -> None:
    """If the cache is not writable, every check reads all models and reports no error."""
    (tmp_path / "kept").write_text("a file")
    first = pipeline.run(request_)
    counted()

    assert all_results(pipeline.run(request_)) == all_results(first)
    assert counted() == (paths(request_), paths(request_))


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
def test_folder_writable_by_others_is_not_used(request_: GateRequest, tmp_path: Path, counted: Counted) -> None:
    """A cache folder that other users could write to is not used."""
    pipeline.run(request_)
    counted()
    (tmp_path / "kept").chmod(0o777)
    pipeline.run(request_)

    assert counted() == (paths(request_), paths(request_))


def test_projects_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently checked projects and files of killed checks are removed; digests are kept."""
    monkeypatch.setattr(static_cache, "MOST_PROJECTS", 2)
    kept = StaticResultCache(tmp_path, tmp_path)
    left = f".{kept._path.name}.{files._pid_space()}-999999999-ff.tmp"
    for age, name in enumerate(["b.msgpack", "c.msgpack", left, "digests.json"], 1):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age * 10**6,) * 2)
    kept.keep("a", "a")
    kept.save()

    assert {path.suffix for path in tmp_path.iterdir()} == {".msgpack", ".json"}
    assert not (tmp_path / "c.msgpack").exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_entries_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used entries are removed first."""
    monkeypatch.setattr(static_cache, "MAX_ENTRIES", 2)
    kept = StaticResultCache(tmp_path, tmp_path)
    for name in "abc":
        kept.keep(name, name)
    assert kept.find("b", str) == "b"
    kept.save()

    again = StaticResultCache(tmp_path, tmp_path)

    assert [again.find(name, str) for name in "abc"] == [None, "b", "c"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory and crashes are bounded by what Linux has")
@pytest.mark.parametrize("stage", ["file", "support"])
def test_a_crash_costs_one_model(request_: GateRequest, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """If reading a model crashes, only this model is undecided."""
    monkeypatch.setattr(process_pool, "is_fork_safe", lambda: True)  # a forked child inherits the patched function
    victim = request_.models[2].path
    module, name = (file_stage, "inspect_file") if stage == "file" else (support_stage, "collect_model_evidence")
    real = getattr(module, name)

    def crashing(model: SelectedModel, *rest: object) -> object:
        if model.path == victim:
            faulthandler.disable()
            ctypes.string_at(0)
        return real(model, *rest)

    monkeypatch.setattr(module, name, crashing)

    outcome = pipeline.run(with_jobs(request_, 2))

    incomplete = [entry for entry in outcome.gathered.undone if entry.model == victim]
    assert {entry.model for entry in outcome.gathered.undone} == {victim}
    assert (incomplete[0].stage, "SIGSEGV" in incomplete[0].reason) == (stage, True)
    assert (victim in outcome.gathered.facts) == (stage == "support")
    assert {path for path, _ in outcome.gathered.support.verdicts} == set(paths(request_)) - {victim}


def test_children_give_the_same_results(request_: GateRequest) -> None:
    """Parallel child processes give the same results as a sequential check."""
    write(request_.models[0].absolute, parse(MISH, HEAD_22))
    request_ = replace(request_, static=StaticSettings())

    assert all_results(pipeline.run(with_jobs(request_, 2))) == all_results(pipeline.run(request_))


def test_large_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of a large file is reused while its timestamps prove that it is unchanged, but not right after a
    change.
    """
    monkeypatch.setattr(files, "_digests", {})
    file = tmp_path / "large"
    file.write_bytes(bytes(2 * 2**20))
    fresh = files.sha256_of(file)
    after_fresh = files.known_digest(file.stat())
    monkeypatch.setattr(files, "SETTLED_NS", -(10**12))
    files.sha256_of(file)
    settled = files.known_digest(file.stat())
    time.sleep(0.02)
    file.write_bytes(b"\x01" + bytes(2 * 2**20 - 1))

    assert (after_fresh, settled) == (None, fresh)
    assert files.sha256_of(file) != fresh


def replace_lock(request: GateRequest, lock: Lock) -> GateRequest:
    """Return the request with another lock."""
    return replace(request, checkout=replace(request.checkout, lock=lock))


def with_jobs(request: GateRequest, jobs: int) -> GateRequest:
    """Return the request with that number of child processes."""
    return replace(request, static=replace(request.static, jobs=jobs))


def paths(request: GateRequest) -> list[str]:
    """Return the paths of the request's models."""
    return [model.path for model in request.models]


def all_results(outcome: GateOutcome) -> tuple[object, ...]:
    """Return all results of an outcome."""
    return outcome.findings, outcome.gathered.facts, outcome.gathered.support.verdicts, outcome.gathered.undone


def replace_models(lock: Lock, models: dict[str, LockedModel]) -> Lock:
    """Return a lock with these models."""
    return msgspec.structs.replace(lock, models=models)


def replace_rules(config: object, rules: dict[str, str]) -> object:
    """Return a config with other rule levels."""
    return msgspec.structs.replace(config, rules=rules)  # type: ignore[type-var]
