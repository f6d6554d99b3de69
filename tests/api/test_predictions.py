"""`onnxgate.api.predict` and `assert_supported`: the same answers as the commands."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from google.protobuf.message import EncodeError

from onnxgate.api import ArgumentError, Prediction, Reason, assert_supported, predict
from tests.cli.test_check_and_matrix import FOLDERS, POINTER, copy_models, run
from tests.harness.models import make_external, parse, write
from tests.harness.version_models import EQUAL, RELEASES, stamped_file

RANGE = "onnxruntime>=1.17,<1.19"
REFUSED = """\
FAIL  model.onnx: does not load on onnxruntime 1.17.0–1.17.3: IR version 10,
      supported since 1.18.0; loads on 1.18.0–1.18.1 [ir-version-too-new]
      fix: run `onnxgate fix model.onnx --target 'onnxruntime>=1.17,<1.19'` to
           lower the IR version to 9, or narrow the target to >=1.18.0

fail: 1 model checked against 5 releases up to 1.18.1: 1 error; predicted,
   not run"""
UNDECIDED = """\
?     model.onnx: the file is a Git LFS pointer (content not fetched)
      hint: run `git lfs pull --include "model.onnx"`; in GitHub Actions, set
            `lfs: true` for `actions/checkout`

undecided: 1 model checked against 5 releases up to 1.18.1: 1 undecided;
   predicted, not run"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory, with a cache that does not exist yet."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def entries(predictions: list[Prediction]) -> list[tuple[str, str, list[dict[str, str]]]]:
    """Return predictions as values for a comparison with the JSON of the matrix."""
    return [(it.runtime, it.verdict, [as_json(reason) for reason in it.reasons]) for it in predictions]


def as_json(reason: Reason) -> dict[str, str]:
    """Return the fields of a reason."""
    return {name: getattr(reason, name) for name in reason.__struct_fields__}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_answers_are_those_of_the_command(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For each model of our fixtures, predictions and verdict are those of `onnxgate matrix --target`."""
    copy_models(name, folder)
    requirement = "onnxruntime>=1.16.3"
    matrix = json.loads(run(capsys, "matrix", ".", "--target", requirement, "--output", "json")[1])
    unsupported = {it["model"] for it in matrix["findings"] if it["level"] == "error"}
    unsupported |= {it["model"] for it in matrix["undecided"]}

    assert matrix["models"]
    for model in matrix["models"]:
        expected = [(it["runtime"], it["predicted"], it["reasons"]) for it in model["runtimes"]]

        assert expected == entries(predict(model["path"], requirement))
        assert (model["path"] in unsupported) == is_unsupported(model["path"], requirement)


def is_unsupported(model: str, requirement: str) -> bool:
    """Return whether `assert_supported` raises an error."""
    try:
        assert_supported(model, requirement)
    except AssertionError:
        return True
    return False


def test_a_message_has_the_predictions_of_its_file(folder: Path) -> None:
    """A `ModelProto` is predicted like the saved model; large weights count, too."""
    model = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Add(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.ones((4096, 4), numpy.float16), "w"))
    write(folder / "m.onnx", model)
    predictions = predict(model, RANGE)

    assert predict(folder / "m.onnx", RANGE) == predictions
    assert {"refused"} == {it.verdict for it in predictions}


def test_a_message_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary copy of a `ModelProto` is removed, also after an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    predict(parse(), RANGE)
    with pytest.raises(AssertionError, match=r"does not load on onnxruntime 1\.17\.0"):
        assert_supported(parse(EQUAL), "onnxruntime==1.17.0")

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("function", [predict, assert_supported])
def test_external_data_needs_a_path(function: Any) -> None:
    """A `ModelProto` does not know the folder of its data, so that a prediction would be wrong."""
    model = parse("g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
    make_external(model, "w.bin")

    with pytest.raises(ArgumentError, match="save the model, and pass its path"):
        function(model, RANGE)


def test_a_message_above_the_limit_of_protobuf() -> None:
    """protobuf serializes up to 2 GB; the error states that the model has to be saved."""

    class LargeModel:
        DESCRIPTOR, graph, functions = onnx.ModelProto.DESCRIPTOR, parse().graph, ()

        def __getattr__(self, name: str) -> Any:
            return getattr(parse(), name)

        def SerializeToString(self) -> bytes:  # noqa: N802
            raise EncodeError("Failed to serialize proto")

    with pytest.raises(
        ArgumentError, match=r"cannot be serialized \(Failed to serialize proto\); save it, and pass its path"
    ):
        predict(LargeModel(), RANGE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("", "`` is not a valid requirement; for example"),
        ("1.18", "`1.18` is not a valid requirement; did you mean `onnxruntime==1.18.*`?"),
        ("onnxruntime>>1", "`onnxruntime>>1` is not a valid requirement; for example"),
        ("onnxruntime @ https://example.org/x.whl", "contains a URL, which selects no releases; for example"),
        ("onnxruntime>=1.18; python_version<'3'", "contains a marker, which selects no releases; for example"),
        ("onnxruntime[extra]>=1.18", "contains an extra, which selects no releases; for example `onnxruntime>=1.18`"),
        ("onnxruntim>=1.18", "no support data for `onnxruntim`; did you mean `onnxruntime>=1.18`?"),
        ("tensorflow", "no support data for `tensorflow`; engines with support data: `onnxruntime`"),
        ("onnxruntime>=9", "no known release matches `onnxruntime>=9`; onnxgate "),
    ],
)
def test_an_invalid_requirement(folder: Path, requirement: str, message: str) -> None:
    """A range without releases is an error, not an empty list, for which every model would be supported."""
    stamped_file(folder / "model.onnx", 8, 18)
    for function in (predict, assert_supported):
        with pytest.raises(ArgumentError) as raised:
            function("model.onnx", requirement)

        assert message in str(raised.value)


def test_a_missing_file(folder: Path) -> None:
    """The errors are those of `open`."""
    with pytest.raises(FileNotFoundError) as raised:
        predict("model.onnx")
    with pytest.raises(IsADirectoryError):
        predict(folder)
    with pytest.raises(TypeError, match=r"expected a path or an `onnx.ModelProto`, got `GraphProto`"):
        predict(parse().graph)  # type: ignore[arg-type]

    assert str(raised.value.filename) == "model.onnx"


@pytest.mark.parametrize("function", [predict, assert_supported])
@pytest.mark.parametrize("requirement", [None, 5, True])
def test_a_requirement_of_another_type(folder: Path, function: Any, requirement: Any) -> None:
    """An unset variable is not a requirement; a test must not pass because of it."""
    write(folder / "m.onnx", parse(EQUAL))

    with pytest.raises(TypeError, match="`requirement` must be `str`, got `"):
        function("m.onnx", requirement)


def test_an_empty_path(folder: Path) -> None:
    """An empty path is not the working directory."""
    with pytest.raises(FileNotFoundError):
        predict("")


def test_no_side_effects(folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is printed, no process starts, and no cache is written."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    write(folder / "m.onnx", parse(EQUAL))
    predict("m.onnx")
    with pytest.raises(AssertionError, match="does not load"):
        assert_supported("m.onnx", RANGE)

    assert ("", "") == tuple(capfd.readouterr())
    assert ["m.onnx"] == [path.name for path in folder.iterdir()]
    assert not (folder.parent / "cache").exists()


def test_a_changed_file_is_read_again(folder: Path) -> None:
    """An export script may overwrite a model and ask again in the same process."""
    stamped_file(folder / "model.onnx", 10, 18)
    before = predict("model.onnx", RANGE)
    stamped_file(folder / "model.onnx", 8, 18)

    assert (["refused"] * 3 + ["loads"] * 2, ["loads"] * 5) == (
        [it.verdict for it in before],
        [it.verdict for it in predict("model.onnx", RANGE)],
    )


def test_every_release_by_default(folder: Path) -> None:
    """Without a requirement, all known releases are predicted, in ascending order."""
    stamped_file(folder / "model.onnx", 8, 18)
    predictions = predict("model.onnx")

    assert list(RELEASES) == [it.release for it in predictions]
    assert {"onnxruntime"} == {it.engine for it in predictions}


def test_other_engines(folder: Path) -> None:
    """The requirement names the engine, and an engine without a table is an error."""
    write(folder / "model.onnx", parse(EQUAL))
    predictions = predict("model.onnx", "onnxruntime-web>=1.20,<1.22")

    assert {"onnxruntime-web"} == {it.engine for it in predictions}
    assert {("1.20.0", "refused"), ("1.21.0", "loads")} <= {(it.release, it.verdict) for it in predictions}
    with pytest.raises(AssertionError, match=r"does not load on onnxruntime-web 1\.20\.0"):
        assert_supported("model.onnx", "onnxruntime-web>=1.20,<1.22")


def test_a_prediction_as_text(folder: Path) -> None:
    """A printed prediction has its reasons, and the release that works."""
    stamped_file(folder / "model.onnx", 10, 18)
    lines = list(map(str, predict("model.onnx", "onnxruntime>=1.17.3,<1.18.1")))

    assert lines == [
        "onnxruntime 1.17.3: refused: ir-version-too-new: uses IR version 10 (works since 1.18.0)",
        "onnxruntime 1.18.0: loads",
    ]


def test_the_message_of_an_unsupported_model(folder: Path) -> None:
    """The message reads like the output of `check`: model, releases, reason, and a fix."""
    stamped_file(folder / "model.onnx", 10, 18)
    with pytest.raises(AssertionError) as raised:
        assert_supported("model.onnx", RANGE)

    assert REFUSED == str(raised.value)


def test_a_release_without_kernel_data_is_undecided(folder: Path) -> None:
    """The message contains the command that loads the model instead."""
    stamped_file(folder / "model.onnx", 8, 15)
    with pytest.raises(AssertionError, match=r"could not be predicted on onnxruntime 1\.15\.0–1\.15\.1") as raised:
        assert_supported("model.onnx", "onnxruntime>=1.15")

    assert "`onnxgate matrix --verify --target 'onnxruntime>=1.15' model.onnx`" in str(raised.value)


def test_an_unreadable_file_is_undecided(folder: Path) -> None:
    """A model without a prediction is not supported, and the message contains a fix."""
    (folder / "model.onnx").write_text(POINTER, encoding="utf-8")
    with pytest.raises(AssertionError) as raised:
        assert_supported("model.onnx", RANGE)

    assert UNDECIDED == str(raised.value)
    assert {("unknown", 1)} == {(it.verdict, len(it.reasons)) for it in predict("model.onnx", RANGE)}


def test_the_command_that_lists_all_reasons(folder: Path) -> None:
    """If the message omits reasons, it contains the command that prints them."""
    write(folder / "my model.onnx", parse("g (bool[N] a) => (bool[N] b, bool[N] c) { b = Add(a, a) c = Sub(a, a) }"))
    with pytest.raises(AssertionError) as raised:
        assert_supported("my model.onnx", RANGE)

    assert f"hint: `onnxgate check \"my model.onnx\" --target '{RANGE}' -v`" in str(raised.value)


def test_a_release_that_refuses_a_node_because_of_others_is_no_release_since_which_it_works(tmp_path: Path) -> None:
    """OpenVINO supports SequenceInsert since 2026.1.0, but up to 2026.2.1 only in a Loop."""
    nodes = "s = SequenceConstruct (x) t = SequenceInsert (s, x) y = ConcatFromSequence <axis = 0> (t)"
    path = write(
        tmp_path / "m.onnx",
        parse(f"agraph (float[2] x) => (float[4] y) {{ {nodes} }}", '<ir_version: 8, opset_import: ["" : 17]>'),
    )
    predictions = {it.release: it for it in predict(path, "openvino>=2026.1,<2026.3")}

    assert {"2026.1.0", "2026.2.1"} <= predictions.keys()
    assert {"refused"} == {it.verdict for it in predictions.values()}
    assert {""} == {reason.works_since for it in predictions.values() for reason in it.reasons}
