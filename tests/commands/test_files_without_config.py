"""Verdicts of models without a config, after their predictions were verified."""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnx.parser
import pytest

from onnxgate.commands.files_without_config import FileCheck, check_files, make_request
from onnxgate.core.errors import UsageError
from onnxgate.core.matrix import Entry, MatrixModel, Observed
from tests.harness.models import make_external, parse, write
from tests.harness.version_models import RELEASES, stamped_file

TWINS = "g (float[N] x) => (float[N] y) <float[N] z> { [twin] z = Abs(x) [twin] y = Abs(z) }"


def verified(folder: Path, target: str | None, **observed: Observed) -> FileCheck:
    """Check `m.onnx` with an observation for each release, `loads` unless given as `v1_18_1`."""

    def observe(entry: Entry) -> Entry:
        name = f"v{entry.runtime.rpartition(' ')[2].replace('.', '_')}"
        return msgspec.structs.replace(entry, observed=observed.get(name, "loads"), error="an error")

    def verify(models: tuple[MatrixModel, ...]) -> tuple[MatrixModel, ...]:
        return tuple(
            msgspec.structs.replace(model, runtimes=tuple(observe(entry) for entry in model.runtimes))
            for model in models
        )

    request = make_request([Path("m.onnx")], target, folder, 1)
    return check_files(request, "error", drawn=False, target=target, verify=verify)


@pytest.mark.parametrize("target", [None, "onnxruntime>=1.17,<1.19"])
def test_a_contradicted_prediction_is_dropped(tmp_path: Path, target: str | None) -> None:
    """A run decides: a model that loads on all releases passes, although it was predicted not to load."""
    stamped_file(tmp_path / "m.onnx", 14, 18)
    matrix = verified(tmp_path, target).matrix

    assert (matrix.verdict, matrix.findings, matrix.undecided) == ("pass", (), ())


def missing_data(path: Path, location: str = "w.bin") -> None:
    """Write a model whose external data does not exist."""
    model = parse("g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
    make_external(model, location)
    write(path, model)


@pytest.mark.parametrize(
    ("observed", "rules"), [({}, []), ({"v1_18_1": "refused"}, ["external-data-missing"])], ids=["all", "not all"]
)
def test_file_error_is_dropped_if_all_releases_load(
    tmp_path: Path, observed: dict[str, Observed], rules: list[str]
) -> None:
    """An error of the file predicts a failure on every release; one release that loads does not contradict it."""
    missing_data(tmp_path / "m.onnx")
    matrix = verified(tmp_path, "onnxruntime>=1.17,<1.20", **observed).matrix

    assert [finding.rule for finding in matrix.findings] == rules


def test_contradicted_releases_are_not_listed(tmp_path: Path) -> None:
    """A finding keeps only the releases that were not observed to load the model."""
    stamped_file(tmp_path / "m.onnx", 14, 18)
    (finding,) = verified(tmp_path, "onnxruntime>=1.17,<1.19", v1_18_0="refused").matrix.findings

    assert finding.runtimes == ("onnxruntime 1.18.0",)


def test_data_outside_the_folder_is_not_loaded(tmp_path: Path) -> None:
    """The sandbox does not let runtimes read data outside of the model's folder, which an unrestricted one may do."""
    missing_data(tmp_path / "m.onnx", "../w.bin")
    matrix = verified(tmp_path, "onnxruntime>=1.17,<1.20").matrix

    assert {finding.rule for finding in matrix.findings} == {"external-data-escapes"}
    assert {entry.observed for entry in matrix.models[0].runtimes} == {""}
    (gap,) = (gap for gap in matrix.undecided if gap.stage == "runtime")
    assert (gap.model, gap.reason.partition(":")[0]) == ("m.onnx", "was not loaded")


@pytest.mark.parametrize(("target", "verdict"), [(None, "pass"), ("onnxruntime>=1.18,<1.20", "fail")])
def test_an_observed_failure(tmp_path: Path, target: str | None, verdict: str) -> None:
    """A load that fails against the prediction is an error if the release is required."""
    stamped_file(tmp_path / "m.onnx", 8, 18)
    checked = verified(tmp_path, target, v1_18_0="refused")
    errors = [(it.rule, it.runtimes) for it in checked.matrix.findings]

    assert (checked.report.verdict, checked.matrix.verdict) == (verdict, verdict)
    assert errors == ([("load-failed", ("onnxruntime 1.18.0",))] if target else [])


def test_a_failure_on_all_releases(tmp_path: Path) -> None:
    """Without a target, a model that no release loads fails."""
    stamped_file(tmp_path / "m.onnx", 8, 18)
    observed: dict[str, Observed] = {f"v{release.replace('.', '_')}": "crashed" for release in RELEASES}

    assert [it.rule for it in verified(tmp_path, None, **observed).matrix.findings] == ["runtime-crashed"]


@pytest.mark.parametrize("observed", ["unavailable", "timed-out"])
def test_a_failed_verification_is_undecided(tmp_path: Path, observed: Observed) -> None:
    """What was requested and could not be done is not a pass."""
    stamped_file(tmp_path / "m.onnx", 8, 18)
    matrix = verified(tmp_path, None, v1_18_1=observed).matrix

    assert (matrix.verdict, matrix.exit) == ("undecided", 3)
    assert [(it.runtime, it.reason) for it in matrix.undecided] == [("onnxruntime 1.18.1", "an error")]


def test_an_invalid_model_that_loads(tmp_path: Path) -> None:
    """A fault of the file is a warning if the releases load it, and stays an error if one refuses it."""
    write(tmp_path / "m.onnx", onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {TWINS}'))
    target = "onnxruntime>=1.18,<1.20"
    matrices = [verified(tmp_path, target, **observed).matrix for observed in ({}, {"v1_18_0": "refused"})]

    assert [[(it.rule, it.level) for it in matrix.findings] for matrix in matrices] == [
        [("invalid-model", "warning")],
        [("invalid-model", "error")],
    ]
    assert matrices[0].findings[0].message.endswith("onnxruntime 1.18.0–1.19.2 accept it")


def test_an_invalid_model_that_does_not_load(tmp_path: Path) -> None:
    """It is one error, with the fix of the file."""
    write(tmp_path / "m.onnx", onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {TWINS}'))
    (error,) = verified(tmp_path, "onnxruntime==1.18.1", v1_18_1="refused").matrix.findings

    assert (error.rule, bool(error.fix)) == ("invalid-model", True)


def test_a_model_that_could_not_be_run(tmp_path: Path) -> None:
    """After an attempt to load it, the result is not about a prediction."""
    stamped_file(tmp_path / "m.onnx", 8, 18)
    matrix = verified(tmp_path, "onnxruntime==1.15.1", v1_15_1="unavailable").matrix

    assert {(it.stage, it.model, it.reason) for it in matrix.undecided} == {
        ("runtime", "m.onnx", "could not be run on onnxruntime 1.15.1"),
        ("runtime", "", "an error"),
    }


def test_a_pointer_stays_undecided(tmp_path: Path) -> None:
    """A runtime refuses a Git LFS pointer, which says nothing about the model."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    (tmp_path / "m.onnx").write_text(pointer)
    matrix = verified(tmp_path, "onnxruntime==1.18.1", v1_18_1="refused").matrix

    assert (matrix.verdict, matrix.findings) == ("undecided", ())
    assert matrix.models[0].on("unknown") == ("onnxruntime 1.18.1",)


@pytest.mark.parametrize("target", [None, "onnxruntime>=1.18"])
def test_an_unreadable_file_has_one_reason(tmp_path: Path, target: str | None) -> None:
    """Loading a file that cannot be read on each release would not help, so no hint recommends it."""
    stamped_file(tmp_path / "ok.onnx", 8, 17)
    (tmp_path / "ring.onnx").symlink_to("ring.onnx")
    report = check_files(make_request([Path()], target, tmp_path, 1), "error", drawn=False, target=target).report

    assert {("ring.onnx", "the file cannot be opened: too many levels of symbolic links", "")} == {
        (it.model, it.reason, it.hint) for it in report.undecided
    }


def test_target_selects_the_engine(tmp_path: Path) -> None:
    """Without a config, each engine with a support table can be required."""
    write(tmp_path / "m.onnx")
    request = make_request([Path("m.onnx")], "onnxruntime_web>=1.29", tmp_path, 1)

    assert ["onnxruntime-web 1.29.0", "onnxruntime-web 1.30.0"] == [
        runtime.name for target in request.lock.targets.values() for runtime in target.runtimes
    ]


def test_target_without_support_data_is_refused(tmp_path: Path) -> None:
    """The hint names the engines that can be required."""
    write(tmp_path / "m.onnx")
    with pytest.raises(UsageError) as refused:
        make_request([Path("m.onnx")], "opencv-python-headless", tmp_path, 1)

    assert refused.value.message == "onnxgate has no support data for `opencv-python-headless`"
    assert "`onnxruntime`, `onnxruntime-web`" in (refused.value.hint or "")
