"""Comparison of an export with the request, and of a first export with a second one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import onnx.parser
import pytest

from onnxgate.core.findings import Place
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
from onnxgate.evidence.export import ExportedInterface, ExportFailure, LostAxis, Reexport, SourceBehaviour
from onnxgate.model.facts import ModelFacts, ValueInfo
from onnxgate.model.reading.view import ModelView
from onnxgate.project.config.project import Project
from onnxgate.rules.export.dynamic_axis_lost import dynamic_axis_lost
from onnxgate.rules.export.source_not_exportable import source_not_exportable
from onnxgate.stages import export as stage
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages.exported_model import compare_with_request, find_nearest_opset, find_training_nodes
from tests.stages.export.test_export_stage import (
    COMMAND,
    PYTHON,
    SOURCE,
    NewProject,
    command_result,
    exported,
    new_project,
    planned_for,
    write,
)

__all__ = ["new_project"]

TENSOR = ReturnedLeaf()


def facts(inputs: dict[str, tuple[int | str, ...]], outputs: dict[str, tuple[int | str, ...]]) -> ModelFacts:
    """Return facts of a model with these shapes."""
    values = [tuple(ValueInfo(n, "tensor(float)", s) for n, s in each.items()) for each in (inputs, outputs)]
    return ModelFacts("m.onnx", "", 0, 8, {"ai.onnx": 18}, "", values[0], values[1], {}, ())


def find_lost_axes(details: ExportDetails, model: ModelFacts) -> tuple[LostAxis, ...]:
    """Return the lost axes."""
    return compare_with_request(details, model).lost_axes


def test_axes_match_the_request() -> None:
    """Dynamic inputs and outputs match the request, and so do axes without a requested name."""
    axis = RequestedAxis(input=0, axis=0, name="batch")
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    details = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR,))

    unnamed = msgspec.structs.replace(details, axes=(RequestedAxis(input=0, axis=0),))

    assert find_lost_axes(details, facts({"x": ("batch", 4)}, {"y": ("?", 4)})) == ()
    assert find_lost_axes(unnamed, facts({"x": ("s77", 4)}, {"y": ("?", 4)})) == ()


def test_renamed_axis() -> None:
    """An axis with a name of the exporter is reported; axes of equal sizes may share one of the requested names."""
    details = ExportDetails(
        axes=(RequestedAxis(input=0, axis=0, name="batch"), RequestedAxis(input=1, axis=0, name="rows"))
    )

    assert find_lost_axes(details, facts({"x": ("s11", 4), "z": ("rows", 4)}, {})) == (
        LostAxis(role="input", value="x", axis=0, name="batch", renamed="s11"),
    )
    assert find_lost_axes(details, facts({"x": ("batch", 4), "z": ("batch", 4)}, {})) == ()


def test_input_that_became_static() -> None:
    """Only the static input is reported, because its output follows from it."""
    axis = RequestedAxis(input=0, axis=0, name="batch")
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    details = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR,))

    assert find_lost_axes(details, facts({"x": (2, 4)}, {"y": (2, 4)})) == (
        LostAxis(role="input", value="x", axis=0, name="batch", size=2),
    )


def test_output_that_became_static() -> None:
    """An output that grows with the inputs in the source, but not in the file, is reported."""
    axis = RequestedAxis(value="x", axis=0, name="batch")
    grown = (GrownAxis(output=1, axis=0, size=2, grown=3),)
    details = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR, ReturnedLeaf(kind="none"), TENSOR))

    assert find_lost_axes(details, facts({"x": ("batch", 4)}, {"y": ("batch", 4), "z": (2, 4)})) == (
        LostAxis(role="output", value="z", axis=0, size=2, grown=3),
    )


def test_ambiguous_outputs() -> None:
    """With a different number of outputs, positions are ambiguous; `output-dropped` reports that."""
    axis = RequestedAxis(input=0, axis=0)
    grown = (GrownAxis(output=1, axis=0, size=2, grown=3),)
    details = ExportDetails(axes=(axis,), grew=(axis,), grown=grown, leaves=(TENSOR, TENSOR))

    assert find_lost_axes(details, facts({"x": ("batch", 4)}, {"z": (2, 4)})) == ()


def test_output_requested_by_name() -> None:
    """An axis of an output can be requested by name, and is reported once."""
    axes = (RequestedAxis(value="x", axis=0, name="b"), RequestedAxis(value="y", axis=0, name="b"))
    grown = (GrownAxis(output=0, axis=0, size=2, grown=3),)
    details = ExportDetails(axes=axes, grew=axes[:1], grown=grown, leaves=(TENSOR,))

    assert find_lost_axes(details, facts({"x": ("b", 4)}, {"y": (2, 4)})) == (
        LostAxis(role="output", value="y", axis=0, name="b", size=2),
    )


@pytest.mark.parametrize(("works", "message"), [(2, 1), (None, 0)])
def test_sizes_that_were_excluded(works: int | None, message: int) -> None:
    """A size that the source does not accept either, such as one beyond a position table, is not a lost axis."""
    details = ExportDetails(narrow=(NarrowedAxis(input=0, axis=0, lowest=3, works=works),))

    assert len(find_lost_axes(details, facts({"x": ("batch", 4)}, {"y": ("batch", 4)}))) == message


@pytest.mark.parametrize(
    ("requested", "limit", "nearest"),
    [(13, None, 18), (26, None, 25), (26, 21, 21), (20, None, None), (20, 19, 19), (None, None, None), (26, 17, None)],
)
def test_nearest_opset(requested: int | None, limit: int | None, nearest: int | None) -> None:
    """The nearest opset is one that the exporter writes and every target supports."""
    assert find_nearest_opset(requested, ExportDetails(opsets=(18, 25)), limit) == nearest


@pytest.mark.parametrize(
    ("body", "actual"),
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
def test_training_nodes(body: str, actual: list[str], tmp_path: Path) -> None:
    """Training mode is recognized as a True constant in an input, and as an attribute of BatchNormalization."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[N, 4] x) => (float[N, 4] y) {body}'
    model = onnx.parser.parse_model(text)

    assert [node.operator for node in find_training_nodes(ModelView(model), tmp_path, tmp_path)] == actual


def second_export_plan(project: Project) -> jobs.ExportPlan:
    """Return a plan with a second export."""
    plan = planned_for(project)
    return jobs.plan_second_export(jobs.ProjectToolchain(project, PYTHON), plan, project.folder / "scratch" / "again")


def second_export(planned: jobs.ExportPlan, **model: Any) -> Observation:
    """Return the observation of a second export that wrote this model."""
    assert isinstance(planned.again, Export)
    return Completed(result=ExportResult(model=str(write(Path(planned.again.output) / "model.onnx", **model))))


def subject(made: stage.ExportOutcome) -> Reexport:
    """Return the evidence for the rules."""
    assert made.subject is not None
    return made.subject


def test_second_export_is_planned_elsewhere(new_project: NewProject) -> None:
    """The second export uses another seed and another folder, and runs only the export."""
    project = new_project(SOURCE)
    planned = second_export_plan(project)

    assert isinstance(planned.again, Export)
    assert (planned.again.seed, planned.again.eager, planned.again.cases) == (1, False, ())
    assert jobs.is_relocated(planned)
    assert planned.source is not None
    assert planned.source.source != planned.again.source
    assert Path(planned.source.source.rpartition(":")[0]).samefile(planned.again.source.rpartition(":")[0])


def test_two_equal_exports(new_project: NewProject) -> None:
    """Two equal exports have no differences."""
    planned = second_export_plan(new_project(SOURCE))
    evidence = stage.collect_evidence(new_project_of(planned), planned, exported(planned), second_export(planned))

    assert (subject(evidence).second.differences, subject(evidence).second.failure, evidence.undone) == ((), None, None)


def test_two_exports_that_differ(new_project: NewProject) -> None:
    """The differences between the two exports are recorded."""
    planned = second_export_plan(new_project(SOURCE))
    evidence = stage.collect_evidence(
        new_project_of(planned), planned, exported(planned), second_export(planned, op="Neg")
    )

    assert subject(evidence).second.differences == ("output `y` changed from `Relu` to `Neg`",)


@pytest.mark.parametrize(
    ("observation", "failure"),
    [
        (Refused(failure=Failure(type="OSError", text="no")), Failure(type="OSError", text="no")),
        (Crashed(signal="SIGSEGV", during="export", log=""), Failure(type="SIGSEGV", text="during export")),
    ],
)
def test_second_export_that_fails(new_project: NewProject, observation: Observation, failure: Failure) -> None:
    """The failure of the second export is recorded."""
    planned = second_export_plan(new_project(SOURCE))
    evidence = stage.collect_evidence(new_project_of(planned), planned, exported(planned), observation)

    assert subject(evidence).second.failure == failure


@pytest.mark.parametrize(
    "observation", [TimedOut(limit_s=3, during="export", log=""), Unavailable(reason="no interpreter")]
)
def test_second_export_that_never_was(new_project: NewProject, observation: Observation) -> None:
    """If the second export did not finish, stability is not checked."""
    planned = second_export_plan(new_project(SOURCE))
    evidence = stage.collect_evidence(new_project_of(planned), planned, exported(planned), observation)

    assert evidence.undone is not None
    assert evidence.undone.reason.startswith("export stability could not be checked: ")
    assert (subject(evidence).second.differences, subject(evidence).second.failure) == ((), None)


def test_first_export_that_fails(new_project: NewProject) -> None:
    """If the first export fails, the second one is ignored."""
    planned = second_export_plan(new_project(SOURCE))
    first = Refused(failure=Failure(type="OSError", text="no"))
    evidence = stage.collect_evidence(new_project_of(planned), planned, first, second_export(planned, op="Neg"))

    assert (subject(evidence).failure, subject(evidence).second.differences) == (first.failure, ())


def test_command_is_run_twice(new_project: NewProject) -> None:
    """The second run of a command writes to another file, and its failure is recorded."""
    planned = second_export_plan(new_project(COMMAND))

    assert isinstance(planned.again, Command)
    assert planned.written is not None
    assert planned.written_again is not None
    assert str(planned.written_again) in planned.again.argv
    write(planned.written)
    write(planned.written_again, op="Neg")
    project = new_project_of(planned)
    assert subject(
        stage.collect_evidence(project, planned, command_result(0), command_result(0))
    ).second.differences == ("output `y` changed from `Relu` to `Neg`",)
    failed = subject(
        stage.collect_evidence(project, planned, command_result(0), command_result(2, "no weights"))
    ).second.failure
    assert failed == Failure(type="exit status 2", text="no weights")


def new_project_of(planned: jobs.ExportPlan) -> Project:
    """Return the project that a plan was made for."""
    from onnxgate.project.config.loader import load_config

    return load_config(planned.model.absolute.parent.parent / "onnxgate.toml")


CONFLICT = (
    "Found the following conflicts between user-specified ranges and inferred ranges from model tracing: - tracing "
    "inferred a static shape of {} for dimension inputs['x'].shape[1]."
)


@pytest.mark.parametrize(("size", "is_named"), [(7, True), (6, False)])
def test_fix_names_the_recurrent_layer(size: int, is_named: bool) -> None:
    """A lost sequence length is blamed on the recurrent layer, not on code of the source that does not exist."""
    behaviour = SourceBehaviour(exporter="dynamo", recurrent={"`encoder` (`nn.LSTM`)": 7})
    lost = LostAxis(role="output", value="y", axis=1, size=size, grown=8)
    failure = Failure(type="ValueError", text=CONFLICT.format(size))
    subject = Reexport(model="m.onnx", place=Place("m.py", 1), source="m.py:build", behaviour=behaviour)
    written = msgspec.structs.replace(subject, interface=ExportedInterface(lost_axes=(lost,)))
    failed = msgspec.structs.replace(subject, end=ExportFailure(failure=failure))
    hits = [*dynamic_axis_lost.judge(written), *source_not_exportable.judge(failed)]

    assert ["fixes the sequence length of `encoder` (`nn.LSTM`)" in hit.fix for hit in hits] == [is_named] * 2
