"""What was asked of an exporter held against the file, and a first export against a second one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from onnxgate.core.jobs import (
    Command,
    Completed,
    Crashed,
    Export,
    ExportDetails,
    ExportResult,
    Failure,
    GrownAxis,
    NarrowedAxis,
    Observation,
    Refused,
    RequestedAxis,
    ReturnedLeaf,
    TimedOut,
    Unavailable,
)
from onnxgate.evidence.export import LostAxis, Reexport
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.reading.view import ModelView
from onnxgate.project.config.project import Project
from onnxgate.stages import export as stage
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages.export import compare_with_request, find_nearest_opset, find_training_nodes
from tests.stages.export.test_export_stage import (
    COMMAND,
    PYTHON,
    SOURCE,
    NewProject,
    ended,
    exported,
    new_project,
    planned_for,
    write,
)

__all__ = ["new_project"]

TENSOR = ReturnedLeaf()


def facts(inputs: dict[str, tuple[int | str, ...]], outputs: dict[str, tuple[int | str, ...]]) -> ModelFacts:
    """A model of these shapes."""
    values = [tuple(ValueInfo(n, "tensor(float)", s) for n, s in each.items()) for each in (inputs, outputs)]
    return ModelFacts("m.onnx", "", 0, 8, {"ai.onnx": 18}, "", values[0], values[1], {}, ())


def lost(told: ExportDetails, model: ModelFacts) -> tuple[LostAxis, ...]:
    """The axes that were lost."""
    return compare_with_request(told, model).lost_axes


def test_axes_that_are_as_asked() -> None:
    """A dynamic input, and an output that follows it, whatever the exporter calls their sizes."""
    axis = RequestedAxis(input=0, axis=0, name="batch")
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    told = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR,))

    assert lost(told, facts({"x": ("s77", 4)}, {"y": ("?", 4)})) == ()


def test_input_that_became_static() -> None:
    """Only the input is said: its output follows."""
    axis = RequestedAxis(input=0, axis=0, name="batch")
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    told = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR,))

    assert lost(told, facts({"x": (2, 4)}, {"y": (2, 4)})) == (
        LostAxis(role="input", value="x", axis=0, name="batch", size=2),
    )


def test_output_that_became_static() -> None:
    """It grows with the inputs, and not in the file."""
    axis = RequestedAxis(value="x", axis=0, name="batch")
    grown = (GrownAxis(output=1, axis=0, size=2, grown=3),)
    told = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR, ReturnedLeaf(kind="none"), TENSOR))

    assert lost(told, facts({"x": ("batch", 4)}, {"y": ("batch", 4), "z": (2, 4)})) == (
        LostAxis(role="output", value="z", axis=0, size=2, grown=3),
    )


def test_outputs_that_cannot_be_told_apart() -> None:
    """With another number of outputs no position is certain: `output-dropped` speaks of that."""
    axis = RequestedAxis(input=0, axis=0)
    grown = (GrownAxis(output=1, axis=0, size=2, grown=3),)
    told = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR, TENSOR))

    assert lost(told, facts({"x": ("batch", 4)}, {"z": (2, 4)})) == ()


def test_output_asked_by_name() -> None:
    """An axis of an output may be asked for, too; once is said once."""
    axes = (RequestedAxis(value="x", axis=0, name="b"), RequestedAxis(value="y", axis=0, name="b"))
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    told = ExportDetails(axes=axes, grew=axes[:1], grown=grown, leaves=(TENSOR,))

    assert lost(told, facts({"x": ("b", 4)}, {"y": (2, 4)})) == (
        LostAxis(role="output", value="y", axis=0, name="b", size=2),
    )


@pytest.mark.parametrize(("works", "said"), [(2, 1), (None, 0)])
def test_sizes_that_were_excluded(works: int | None, said: int) -> None:
    """Sizes that the source does not take either are no loss: a table of positions ends somewhere."""
    told = ExportDetails(narrow=(NarrowedAxis(input=0, axis=0, lowest=3, works=works),))

    assert len(lost(told, facts({"x": ("batch", 4)}, {"y": ("batch", 4)}))) == said


@pytest.mark.parametrize(
    ("asked", "limit", "nearest"),
    [(13, None, 18), (26, None, 25), (26, 21, 21), (20, None, None), (20, 19, 19), (None, None, None), (26, 17, None)],
)
def test_nearest_opset(asked: int | None, limit: int | None, nearest: int | None) -> None:
    """The one next to what was asked for that the exporter writes and every target takes."""
    assert find_nearest_opset(asked, ExportDetails(opsets=(18, 25)), limit) == nearest


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("<bool on = {1}> { r = Constant<value = float {0.5}>() y = Dropout(x, r, on) }", ["Dropout"]),
        ("<bool on = {0}> { r = Constant<value = float {0.5}>() y = Dropout(x, r, on) }", []),
        (
            "{ r = Constant<value = float {0.5}>() on = Constant<value = bool {1}>() y = Dropout(x, r, on) }",
            ["Dropout"],
        ),
        ("{ y = Dropout(x) }", []),
        (
            "<float[4] w = {1, 1, 1, 1}> { y, m, v = BatchNormalization<training_mode = 1>(x, w, w, w, w) }",
            ["BatchNormalization"],
        ),
        ("<float[4] w = {1, 1, 1, 1}> { y = BatchNormalization(x, w, w, w, w) }", []),
    ],
)
def test_training_nodes(body: str, found: list[str], tmp_path: Path) -> None:
    """A constant that is True, wherever it stands, and the attribute of a normalisation."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[N, 4] x) => (float[N, 4] y) {body}'
    model = onnx.parser.parse_model(text)

    assert [node.operator for node in find_training_nodes(ModelView(model), tmp_path, tmp_path)] == found


def twice(project: Project) -> jobs.ExportPlan:
    """A plan with a second export."""
    plan = planned_for(project)
    return jobs.plan_second_export(jobs.ProjectToolchain(project, PYTHON), plan, project.folder / "scratch" / "again")


def again(planned: jobs.ExportPlan, **model: Any) -> Observation:
    """A second export that wrote this model."""
    assert isinstance(planned.again, Export)
    return Completed(result=ExportResult(model=str(write(Path(planned.again.output) / "model.onnx", **model))))


def subject(made: stage.ExportOutcome) -> Reexport:
    """What the rules are given."""
    assert made.subject is not None
    return made.subject


def test_second_export_is_planned_elsewhere(new_project: NewProject) -> None:
    """Another seed, another folder, the file alone: and the source is found there."""
    project = new_project(SOURCE)
    planned = twice(project)

    assert isinstance(planned.again, Export)
    assert (planned.again.seed, planned.again.eager, planned.again.cases) == (1, False, ())
    assert jobs.is_relocated(planned)
    assert planned.source is not None
    assert planned.source.source != planned.again.source
    assert Path(planned.source.source.rpartition(":")[0]).samefile(planned.again.source.rpartition(":")[0])


def test_two_equal_exports(new_project: NewProject) -> None:
    """Nothing is said."""
    planned = twice(new_project(SOURCE))
    made = stage.collect_evidence(new_project_of(planned), planned, exported(planned), again(planned))

    assert (subject(made).second.differences, subject(made).second.failure, made.undone) == ((), None, None)


def test_two_exports_that_differ(new_project: NewProject) -> None:
    """What differs is said."""
    planned = twice(new_project(SOURCE))
    made = stage.collect_evidence(new_project_of(planned), planned, exported(planned), again(planned, op="Neg"))

    assert subject(made).second.differences == ("output `y` is `Neg`, was `Relu`",)


@pytest.mark.parametrize(
    ("observation", "failure"),
    [
        (Refused(failure=Failure(type="OSError", text="no")), Failure(type="OSError", text="no")),
        (Crashed(signal="SIGSEGV", during="export", log=""), Failure(type="SIGSEGV", text="during export")),
    ],
)
def test_second_export_that_fails(new_project: NewProject, observation: Observation, failure: Failure) -> None:
    """It was exported once, and not a second time."""
    planned = twice(new_project(SOURCE))
    made = stage.collect_evidence(new_project_of(planned), planned, exported(planned), observation)

    assert subject(made).second.failure == failure


@pytest.mark.parametrize(
    "observation", [TimedOut(limit_s=3, during="export", log=""), Unavailable(reason="no interpreter")]
)
def test_second_export_that_never_was(new_project: NewProject, observation: Observation) -> None:
    """Whether it is stable is not known, which is no pass."""
    planned = twice(new_project(SOURCE))
    made = stage.collect_evidence(new_project_of(planned), planned, exported(planned), observation)

    assert made.undone is not None
    assert made.undone.reason.startswith("export stability could not be checked: ")
    assert (subject(made).second.differences, subject(made).second.failure) == ((), None)


def test_first_export_that_fails(new_project: NewProject) -> None:
    """The second one adds nothing."""
    planned = twice(new_project(SOURCE))
    first = Refused(failure=Failure(type="OSError", text="no"))
    made = stage.collect_evidence(new_project_of(planned), planned, first, again(planned, op="Neg"))

    assert (subject(made).failure, subject(made).second.differences) == (first.failure, ())


def test_command_is_run_twice(new_project: NewProject) -> None:
    """A command writes its second file elsewhere; a status other than 0 is said."""
    planned = twice(new_project(COMMAND))

    assert isinstance(planned.again, Command)
    assert planned.written is not None
    assert planned.written_again is not None
    assert str(planned.written_again) in planned.again.argv
    write(planned.written)
    write(planned.written_again, op="Neg")
    project = new_project_of(planned)
    assert subject(stage.collect_evidence(project, planned, ended(0), ended(0))).second.differences == (
        "output `y` is `Neg`, was `Relu`",
    )
    failed = subject(stage.collect_evidence(project, planned, ended(0), ended(2, "no weights"))).second.failure
    assert failed == Failure(type="exit status 2", text="no weights")


def new_project_of(planned: jobs.ExportPlan) -> Project:
    """The project that a plan was made for."""
    from onnxgate.project.config.loader import load_config

    return load_config(planned.model.absolute.parent.parent / "onnxgate.toml")
