"""Planning of exports, and the evidence collected from their results."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.jobs import (
    Command,
    CommandResult,
    Completed,
    Crashed,
    Export,
    ExportDetails,
    ExportResult,
    Failure,
    InputCase,
    LoadResult,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.evidence.export import ExportFailure
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.lock.types import LockedRuntime, LockedToolchain
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.rules.export.export_failed import export_failed
from onnxgate.rules.export.export_opset_ignored import export_opset_ignored
from onnxgate.runtimes.environments.toolchain import Interpreter
from onnxgate.stages import export as stage
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages.export_jobs import ExportPlan

PYTHON = Path(sys.executable)
RELU = '<ir_version: 8, opset_import: ["" : {opset}]> g (float[N] x) => (float[N] y) {{ y = {op}(x) }}'
CONFIG = """
models = ["models/*.onnx"]
ir-version = "<=10"
opset = { "ai.onnx" = 18 }
[targets.server]
runtime = "onnxruntime"
[toolchain]
requires = ["torch"]
[[model]]
path = "models/m.onnx"
SETTINGS
"""
SOURCE = 'source = "export/m.py:build"'
COMMAND = 'command = ["{python}", "export/m.py", "--opset={opset}", "{output}"]'
ENTRY = Place("onnxgate.toml", 10)
BUILD = Place("export/m.py", 4)
NewProject = Callable[[str], Project]


@pytest.fixture
def new_project(tmp_path: Path) -> NewProject:
    """Return a function that creates a project with one model, exported according to the settings."""

    def make(settings: str) -> Project:
        (tmp_path / "export").mkdir()
        (tmp_path / "export" / "m.py").write_text("import torch\n\n\ndef build():\n    return torch.nn.ReLU()\n")
        write(tmp_path / "models" / "m.onnx")
        (tmp_path / "onnxgate.toml").write_text(CONFIG.replace("SETTINGS", settings))
        return load_config(tmp_path / "onnxgate.toml")

    return make


def write(path: Path, op: str = "Relu", opset: int = 18) -> Path:
    """Write a model with one operator."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(RELU.format(op=op, opset=opset)), path)
    return path


def write_with_external_data(path: Path) -> Path:
    """Write a model whose weights are stored in `w.bin`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = '<ir_version: 8, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Add(x, w) }'
    model = onnx.parser.parse_model(values)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def planned_for(project: Project, releases: Sequence[str] = (), **more: Any) -> ExportPlan:
    """Return the plan for the project's only model, for these releases of ONNX Runtime."""
    (model,) = project.models()
    locked = [LockedRuntime(engine="onnxruntime", release=release, python="3.11", packages=()) for release in releases]
    runtimes = tuple(PlannedRuntime(runtime, ("server",), ("all",), (), True) for runtime in locked)
    return jobs.plan_export(
        jobs.ProjectToolchain(project, PYTHON), PlannedModel(model, runtimes), project.folder / "scratch", **more
    )


def exported(planned: ExportPlan, **model: Any) -> Observation:
    """Return the observation of a source that wrote this model."""
    assert planned.source is not None
    path = write(Path(planned.source.output) / "model.onnx", **model)
    return Completed(result=ExportResult(model=str(path)))


def command_result(status: int, log: str = "") -> Observation:
    """Return the observation of a command that ended."""
    return Completed(result=CommandResult(status=status, log=log))


def test_plan_of_a_source(new_project: NewProject) -> None:
    """The job contains the pinned opset, the config's folder and an empty output folder."""
    project = new_project(SOURCE)
    cases = (InputCase(name="one", origin="generated", inputs={"x": "/x.npy"}),)
    planned = planned_for(project, ["1.16.3", "1.20.1"], cases=cases, external_data=True)

    output = project.folder / "scratch" / "source"
    assert planned.command is None
    assert planned.job == Export(
        source=str(project.folder / "export/m.py:build"),
        output=str(output),
        folder=str(project.folder),
        opset=18,
        opset_max=19,
        opset_ml_max=3,
        ir_version_max=9,
        cases=cases,
        external_data=True,
        float64=True,
        committed=str(project.folder / "models" / "m.onnx"),
    )
    assert list(output.iterdir()) == []


def test_plan_with_the_opset_of_the_model(new_project: NewProject) -> None:
    """The opset in the model's entry replaces the opset at the top level, for sources and for commands."""
    source = planned_for(new_project(f"{SOURCE}\n{COMMAND}\nopset = 17"))

    assert (source.source.opset, source.command.argv[2]) == (17, "--opset=17")  # type: ignore[union-attr]


def test_plan_of_a_command(new_project: NewProject) -> None:
    """Placeholders are replaced; the output goes to a scratch folder, under the model's own name."""
    project = new_project(COMMAND)
    planned = planned_for(project)

    assert planned.source is None
    assert planned.written == project.folder / "scratch" / "command" / "m.onnx"
    argv = (str(PYTHON), "export/m.py", "--opset=18", str(planned.written))
    committed = str(project.folder / "models" / "m.onnx")
    assert planned.job == Command(argv=argv, folder=str(project.folder), committed=committed)
    assert planned.written.parent.is_dir()


def test_plan_of_both(new_project: NewProject) -> None:
    """If a command exports the model, the source only provides eager outputs."""
    planned = planned_for(new_project(f"{SOURCE}\n{COMMAND}"))

    assert planned.job is planned.command
    assert planned.source is not None
    assert not planned.source.export


def test_command_with_unpinned_opset(new_project: NewProject, tmp_path: Path) -> None:
    """A command that uses `{opset}` requires a pinned opset; other models are exported."""
    new_project(COMMAND)
    config = tmp_path / "onnxgate.toml"
    config.write_text(config.read_text().replace('opset = { "ai.onnx" = 18 }', ""))

    problem = planned_for(load_config(config)).problem

    assert problem is not None
    assert problem.reason == "the command uses `{opset}`, but the config does not pin an opset"


@pytest.mark.parametrize(
    ("pinned", "limit", "highest"),
    [
        (None, None, None),
        (None, 9, 9),
        ("<=10", None, 10),
        ("<=10", 9, 9),
        ("<=10", 12, 10),
        ("<10", 12, 9),
        (">=8", 12, 12),
        (">=8", None, None),
        ("!=9,<=9", None, 8),
        (8, 10, 8),
        (8, None, 8),
    ],
)
def test_highest_ir(pinned: str | int | None, limit: int | None, highest: int | None) -> None:
    """The highest allowed IR version satisfies both the config's pin and the runtimes' limit."""
    assert jobs.highest_allowed_ir(pinned, limit) == highest


def test_ir_limit() -> None:
    """The oldest runtime determines the limit; runtimes without data are ignored."""
    runtimes = [
        LockedRuntime(engine=engine, release=release, python="3.11", packages=())
        for engine, release in (
            ("onnxruntime", "1.17.3"),
            ("onnxruntime", "1.31.1"),
            ("onnxruntime", "99.0"),
            ("x", "1"),
        )
    ]

    assert jobs.common_ir_limit(runtimes) == 9
    assert jobs.common_ir_limit(runtimes[2:]) is None


def test_equal(new_project: NewProject) -> None:
    """An export equal to the committed model has no differences; requested and written opsets are recorded."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    evidence = stage.collect_evidence(project, planned, exported(planned))

    assert evidence.subject is not None
    assert evidence.undone is None
    assert evidence.subject.committed.differences == ()
    assert (evidence.subject.opsets.requested, evidence.subject.opsets.written) == ({"ai.onnx": 18}, {"ai.onnx": 18})
    assert evidence.fresh == project.folder / "scratch/source/model.onnx"


def test_stale(new_project: NewProject) -> None:
    """Differences are described in words and placed at the line that defines the source."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    evidence = stage.collect_evidence(project, planned, exported(planned, op="Tanh"))

    assert evidence.subject is not None
    assert (evidence.subject.model, evidence.subject.source) == ("models/m.onnx", "export/m.py:build")
    assert evidence.subject.place == BUILD
    assert evidence.subject.committed.differences != ()
    assert all("Tanh" in difference for difference in evidence.subject.committed.differences)


def test_restamped(new_project: NewProject) -> None:
    """A different IR version alone does not make a file stale, but the change is recorded for a later export."""
    project = new_project(SOURCE)
    old = onnx.load(project.folder / "models/m.onnx")
    old.ir_version = 10
    onnx.save(old, project.folder / "models/m.onnx")
    planned = planned_for(project)
    evidence = stage.collect_evidence(project, planned, exported(planned))

    assert evidence.subject is not None
    assert (evidence.subject.committed.differences, evidence.subject.committed.ir_change) == (
        (),
        "IR version changed from 10 to 8",
    )


@pytest.mark.parametrize(("pin", "requested"), [("", 20), ('opset = { "ai.onnx" = 18 }', 18)])
def test_opset_of_the_source(new_project: NewProject, pin: str, requested: int) -> None:
    """The opset that the source requests counts as required, unless the config pins one."""
    project = new_project(SOURCE)
    config = project.folder / "onnxgate.toml"
    config.write_text(config.read_text().replace('opset = { "ai.onnx" = 18 }', pin))
    project = load_config(config)
    planned = planned_for(project)
    assert planned.source is not None
    path = str(write(Path(planned.source.output) / "model.onnx", opset=18))
    result = ExportResult(model=path, details=ExportDetails(opset=20))
    evidence = stage.collect_evidence(project, planned, Completed(result=result))

    assert evidence.subject is not None
    assert evidence.subject.opsets.requested == {"ai.onnx": requested}


def test_other_opset(new_project: NewProject) -> None:
    """The written opset is read from the file."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    evidence = stage.collect_evidence(project, planned, exported(planned, opset=20))

    assert evidence.subject is not None
    assert (evidence.subject.opsets.requested, evidence.subject.opsets.written) == ({"ai.onnx": 18}, {"ai.onnx": 20})


def test_opset_without_a_pin(new_project: NewProject) -> None:
    """Without a pin, the targets' newest common opset is the limit, and an export beyond it ignores the request."""
    project = new_project(SOURCE)
    project.config.opset.clear()
    planned = planned_for(project, ["1.20.1", "1.31.1"])
    within = stage.collect_evidence(project, planned, exported(planned, opset=18)).subject
    beyond = stage.collect_evidence(project, planned, exported(planned, opset=22)).subject

    assert isinstance(planned.job, Export)
    assert (planned.job.opset, planned.job.opset_max, planned.job.opset_ml_max) == (None, 21, 5)
    assert within is not None
    assert within.opsets.requested == {}
    assert beyond is not None
    assert (beyond.opsets.requested, beyond.opsets.written) == ({"ai.onnx": 21}, {"ai.onnx": 22})


def test_pinned_opset_of_another_domain(new_project: NewProject) -> None:
    """A pin applies only to the domains that the file imports."""
    project = new_project(SOURCE)
    project.config.opset.update({"ai.onnx.ml": 3, "com.microsoft": 1})
    planned = planned_for(project)
    assert planned.source is not None
    path = Path(planned.source.output) / "model.onnx"
    text = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]> g (float[N] x) => (float[N] y) { y = Relu(x) }'
    onnx.save(onnx.parser.parse_model(text), path)
    subject = stage.collect_evidence(project, planned, Completed(result=ExportResult(model=str(path)))).subject

    assert subject is not None
    assert subject.opsets.requested == {"ai.onnx": 18, "ai.onnx.ml": 3}
    assert [hit.message for hit in export_opset_ignored.judge(subject)] == [
        "export with `export/m.py:build` wrote opset 1 of `ai.onnx.ml` instead of 3"
    ]


def test_opset_of_a_command(new_project: NewProject) -> None:
    """A command without the `{opset}` placeholder has no requested opset."""
    project = new_project('command = ["make", "{output}"]')
    planned = planned_for(project)
    assert planned.written is not None
    write(planned.written, opset=20)
    evidence = stage.collect_evidence(project, planned, command_result(0))

    assert evidence.subject is not None
    assert evidence.subject.opsets.requested == {}
    assert (evidence.subject.source, evidence.subject.place) == ("make {output}", ENTRY)


def test_command_that_writes_nothing(new_project: NewProject) -> None:
    """Exit status 0 without an output file is a failure."""
    project = new_project(COMMAND)
    evidence = stage.collect_evidence(project, planned_for(project), command_result(0, "done"))

    assert evidence.subject is not None
    assert evidence.subject.failure == Failure(
        type="missing output", text="the command exited with status 0 but did not write `{output}`"
    )
    assert evidence.subject.place == ENTRY
    assert evidence.fresh is None


@pytest.mark.parametrize(
    ("status", "log", "kind", "text"),
    [
        (3, "working\nno weights\n", "exit status 3", "no weights"),
        (-11, "", "SIGSEGV", "the command printed no error"),
        (127, "`make` cannot be started: no", "exit status 127", "`make` cannot be started: no"),
    ],
)
def test_command_that_fails(new_project: NewProject, status: int, log: str, kind: str, text: str) -> None:
    """A command's failure consists of its exit status and its error message."""
    project = new_project(COMMAND)
    evidence = stage.collect_evidence(project, planned_for(project), command_result(status, log))

    assert evidence.subject is not None
    assert evidence.subject.failure == Failure(type=kind, text=text)


def test_fix_of_a_command(new_project: NewProject) -> None:
    """The fix of a failed command does not name a `source`, which the model does not have."""
    evidence = stage.collect_evidence((project := new_project(COMMAND)), planned_for(project), command_result(3, "no"))
    assert evidence.subject is not None
    (hit,) = export_failed.judge(evidence.subject)

    assert hit.fix == "run the command manually to see its output, then fix the model's `command` in `onnxgate.toml`"


def test_command_failure_contains_no_local_path(new_project: NewProject) -> None:
    """The interpreter and the output file appear under the names used in the config."""
    project = new_project(COMMAND)
    planned = planned_for(project)
    log = f"{PYTHON}: cannot write '{planned.written}' from '{project.folder}/export/m.py'"
    evidence = stage.collect_evidence(project, planned, command_result(1, log))

    assert evidence.subject is not None
    assert evidence.subject.failure is not None
    assert evidence.subject.failure.text == "python: cannot write '{output}' from 'export/m.py'"


def test_command_that_raises(new_project: NewProject) -> None:
    """The finding is placed at the project's line in the traceback."""
    project = new_project(COMMAND)
    log = f'Traceback:\n  File "{project.folder}/export/m.py", line 5, in build\nValueError: bad\n'
    evidence = stage.collect_evidence(project, planned_for(project), command_result(1, log))

    assert evidence.subject is not None
    assert evidence.subject.failure == Failure(type="exit status 1", text="ValueError: bad", source="export/m.py:5")
    assert evidence.subject.place == Place("export/m.py", 5)


@pytest.mark.parametrize(
    ("observation", "recorded"),
    [
        (Crashed(signal="SIGSEGV", during="export", log="x"), ExportFailure(crashed="SIGSEGV during export")),
        (TimedOut(limit_s=300.0, during="export", log="x"), ExportFailure(timed_out_s=300.0)),
        (Refused(failure=Failure(type="E", text="t")), ExportFailure(failure=Failure(type="E", text="t"))),
    ],
)
def test_export_that_ends_badly(new_project: NewProject, observation: Observation, recorded: ExportFailure) -> None:
    """A crash, a timeout and a refusal are recorded and placed at the source's definition."""
    project = new_project(SOURCE)
    evidence = stage.collect_evidence(project, planned_for(project), observation)

    assert evidence.subject is not None
    assert evidence.subject.end == recorded
    assert evidence.subject.place == BUILD
    assert evidence.subject.opsets.written == {}


def test_failure_on_a_line(new_project: NewProject) -> None:
    """A failure is placed at the line that failed, not at the definition of the source."""
    project = new_project(SOURCE)
    failure = Failure(type="ValueError", text="bad", source="lib/net.py:31")
    evidence = stage.collect_evidence(
        project, planned_for(project), Completed(result=ExportResult(model=None, failure=failure))
    )

    assert evidence.subject is not None
    assert evidence.subject.place == Place("lib/net.py", 31)


def test_no_toolchain(new_project: NewProject) -> None:
    """If the export cannot run, the check is incomplete, with the reason and the hint."""
    project = new_project(SOURCE)
    evidence = stage.collect_evidence(project, planned_for(project), Unavailable(reason="no Python", hint="install it"))

    assert evidence == stage.ExportOutcome(
        undone=IncompleteCheck(Stage.EXPORT, "models/m.onnx", "", "no Python", "install it")
    )


def test_answer_to_another_question(new_project: NewProject) -> None:
    """A result of another job type is an internal error."""
    project = new_project(SOURCE)

    with pytest.raises(TypeError):
        stage.collect_evidence(project, planned_for(project), Completed(result=LoadResult(providers=())))


def test_invalid_export(new_project: NewProject) -> None:
    """An export that writes an invalid model has failed, even if the exporter reports success."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    evidence = stage.collect_evidence(project, planned, exported(planned, op="NoSuchOperator"))

    assert evidence.subject is not None
    assert evidence.subject.failure is not None
    assert evidence.subject.failure.type == "invalid model"
    assert "NoSuchOperator" in evidence.subject.failure.text
    assert evidence.subject.committed.differences == ()
    assert evidence.fresh is None


def test_file_that_is_no_model(new_project: NewProject) -> None:
    """A command that writes something other than a model has failed."""
    project = new_project(COMMAND)
    planned = planned_for(project)
    assert planned.written is not None
    planned.written.write_bytes(b"\xff" * 100)
    evidence = stage.collect_evidence(project, planned, command_result(0))

    assert evidence.subject is not None
    assert evidence.subject.failure is not None
    assert evidence.subject.failure.type == "not a model"


def test_data_left_behind(new_project: NewProject) -> None:
    """An export without its external data has failed."""
    project = new_project(COMMAND)
    planned = planned_for(project)
    assert planned.written is not None
    write_with_external_data(planned.written)
    (planned.written.parent / "w.bin").unlink()
    evidence = stage.collect_evidence(project, planned, command_result(0))

    assert evidence.subject is not None
    assert evidence.subject.failure is not None
    assert evidence.subject.failure.text == "the export wrote a file with invalid external data `w.bin` (missing)"


def pointer_to(path: Path) -> str:
    """Return the Git LFS pointer of a file."""
    content = path.read_bytes()
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


def test_pointer_to_the_same_bytes(new_project: NewProject) -> None:
    """A Git LFS pointer with the hash of the fresh export is equal to it."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    observation = exported(planned)
    committed = planned.model.absolute
    committed.write_text(pointer_to(committed))
    evidence = stage.collect_evidence(project, planned, observation)

    assert evidence.undone is None
    assert evidence.subject is not None
    assert evidence.subject.committed.differences == ()


def test_pointer_to_other_bytes(new_project: NewProject) -> None:
    """A pointer with another hash may be an equal model: the check is incomplete, and a hint fetches the content."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    observation = exported(planned, op="Tanh")
    committed = planned.model.absolute
    committed.write_text(pointer_to(committed))
    evidence = stage.collect_evidence(project, planned, observation)

    assert evidence.subject is not None
    assert evidence.subject.committed.differences == ()
    assert evidence.undone is not None
    assert evidence.undone.hint == 'run `git lfs pull --include "m.onnx"`'


def test_external_data_is_a_pointer(new_project: NewProject) -> None:
    """If external data is a pointer, the check is incomplete and the hint names the data file."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    assert planned.source is not None
    fresh = write_with_external_data(Path(planned.source.output) / "model.onnx")
    data = write_with_external_data(planned.model.absolute).parent / "w.bin"
    data.write_text(pointer_to(data))
    evidence = stage.collect_evidence(project, planned, Completed(result=ExportResult(model=str(fresh))))

    assert evidence.undone is not None
    assert evidence.undone.reason.startswith("the external data `w.bin` is a Git LFS pointer")
    assert evidence.undone.hint == 'run `git lfs pull --include "w.bin"`'


@pytest.mark.parametrize("is_fetched", [True, False])
def test_pointer_to_the_same_bytes_with_external_data(new_project: NewProject, is_fetched: bool) -> None:
    """A pointer with the same hash is not enough if the weights are in another file: their digest must match too."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    assert planned.source is not None
    fresh = write_with_external_data(Path(planned.source.output) / "model.onnx")
    committed = write_with_external_data(planned.model.absolute)
    data = committed.parent / "w.bin"
    committed.write_text(pointer_to(committed))
    content = data.read_bytes()

    def collect(content: bytes) -> stage.ExportOutcome:
        data.write_bytes(content)
        if not is_fetched:
            data.write_text(pointer_to(data))
        return stage.collect_evidence(project, planned, Completed(result=ExportResult(model=str(fresh))))

    same, other = collect(content), collect(bytes(len(content)))

    assert same.undone is None
    assert other.undone is not None
    assert other.undone.hint == 'run `git lfs pull --include "m.onnx"`'


def test_model_that_is_not_there_yet(new_project: NewProject) -> None:
    """A model that does not exist yet differs from its export."""
    project = new_project(SOURCE)
    planned = planned_for(project)
    planned.model.absolute.unlink()
    evidence = stage.collect_evidence(project, planned, exported(planned))

    assert evidence.subject is not None
    assert evidence.subject.committed.differences == ("the file does not exist",)


def test_source_with_a_command(new_project: NewProject) -> None:
    """A source that only provides eager outputs has no finding about the file, but its failure is reported."""
    project = new_project(f"{SOURCE}\n{COMMAND}")
    planned = planned_for(project)
    fine = stage.collect_source_evidence(project, planned, Completed(result=ExportResult(model=None)))
    failed = stage.collect_source_evidence(
        project, planned, Completed(result=ExportResult(model=None, failure=Failure(type="E", text="t")))
    )

    assert fine == stage.ExportOutcome()
    assert failed.subject is not None
    assert failed.subject.source == "export/m.py:build"


def test_toolchain_state(new_project: NewProject) -> None:
    """The toolchain is compared with the lock; without a lock there is no comparison."""
    project = new_project(SOURCE)
    actual = Interpreter(PYTHON, "3.11.7", {"torch": "2.15.0+cpu"})
    locked = LockedToolchain(policy="", python="3.11", packages={"torch": "2.13.0"})
    state = stage.compare_toolchain(project, locked, actual)

    assert state is not None
    assert (state.place, state.drift) == (Place("onnxgate.toml", 7), {"torch": ("2.13.0", "2.15.0")})
    assert stage.compare_toolchain(project, None, actual) is None
