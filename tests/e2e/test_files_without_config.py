"""`onnxgate check` without a config: on which releases each model loads."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import msgspec
import onnx.parser
import pytest

from onnxgate import __version__
from onnxgate.core.cache_entries import add_checksum, verify_checksum
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.user_repository import Repository, brief
from tests.harness.version_models import EQUAL, GELU, RELEASES, UNKNOWN, stamped, write_model

ALL = f"onnxruntime 1.8.0–{RELEASES[-1]}"
EXTENT = f"{len(RELEASES)} releases up to {RELEASES[-1]}"
NOT_RUN = "predicted, not run"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"


def last_line(output: str) -> str:
    """Return the last line without the elapsed time."""
    return re.sub(r" \([\d.]+ s\)$", "", output.splitlines()[-1])


def test_loads_on_all(files: Repository) -> None:
    """The line names the releases that load the model; a note names the releases without kernel data."""
    stamped(files, "model.onnx", 7, 13)
    result = files.run("check", "model.onnx")

    assert result.out.splitlines()[:-1] == [
        f"ok    model.onnx: loads on onnxruntime 1.16.0–{RELEASES[-1]}",
        "",
        "notes",
        "  onnxgate has no kernel data for onnxruntime 1.8.0–1.15.1, so it can predict that "
        "these releases refuse a model, but not that they load it",
        "",
    ]
    assert last_line(result.out) == f"pass: 1 model checked against {EXTENT}; {NOT_RUN}"


def test_one_block_for_many_models(files: Repository) -> None:
    """Models with the same answer share one line, and a fix is printed once per error."""
    for number in range(20):
        stamped(files, f"models/m{number:02}.onnx", 10, 21)
    stamped(files, "models/newest.onnx", 15, 18)
    lines = files.run("check", "models", status=1).out.splitlines()

    assert lines[0] == (
        f"ok    20 models load on onnxruntime 1.18.0–{RELEASES[-1]}; "
        "1.8.0–1.17.3 refused: IR version 10 and opset 21 of `ai.onnx`, supported since 1.18.0"
    )
    assert lines[1].split() == [*(f"models/m{number:02}.onnx," for number in range(19)), "models/m19.onnx"]
    assert lines[2].startswith(
        f"FAIL  models/newest.onnx: does not load on onnxruntime 1.8.0–{RELEASES[-1]}: IR version 15, "
    )
    assert lines[2].endswith(" [ir-version-too-new]")
    assert lines[3].startswith(
        f"      fix: run `onnxgate fix models/newest.onnx --target onnxruntime=={RELEASES[-1]}` "
        "to lower the IR version to 14"
    )
    assert last_line(lines[-1]) == f"fail: 21 models checked against {EXTENT}: 1 error; {NOT_RUN}"
    assert len(lines) < 12


def test_loads_on_some(files: Repository) -> None:
    """If only older releases refuse the model, the findings are notes that name the first working release."""
    stamped(files, "model.onnx", 10, 21)
    report = files.report("model.onnx")

    assert {brief(finding) for finding in report["findings"]} == {
        ("note", "ir-version-too-new", "model.onnx"),
        ("note", "opset-too-new", "model.onnx"),
    }
    assert {finding["works_since"] for finding in report["findings"]} == {"1.18.0"}
    assert report["remarks"] == [
        f"model.onnx: loads on onnxruntime 1.18.0–{RELEASES[-1]}; "
        "1.8.0–1.17.3 refused: IR version 10 and opset 21 of `ai.onnx`, supported since 1.18.0"
    ]


def test_operators_and_types(files: Repository) -> None:
    """Releases that support the version fields may lack a kernel."""
    write_model(files, "model.onnx", 8, 14, EQUAL)
    report = files.report("model.onnx")

    assert ("note", "missing-kernel", "model.onnx") in {brief(finding) for finding in report["findings"]}
    assert report["remarks"][0].startswith("model.onnx: loads on onnxruntime 1.21.0–")


def test_model_that_loads_on_no_release(files: Repository) -> None:
    """An IR version that no release supports is an error; reasons of older releases are notes."""
    stamped(files, "model.onnx", 15, 18)
    report = files.report("model.onnx", status=1)

    assert [brief(finding) for finding in report["findings"]] == [
        ("error", "ir-version-too-new", "model.onnx"),
        ("note", "opset-too-new", "model.onnx"),
    ]
    assert report["remarks"] == [
        f"model.onnx: does not load on {ALL}: IR version 15, not supported by any release yet",
        f"model.onnx: onnx {onnx.__version__} does not support IR version 15, so `onnx.checker` was skipped",
    ]


def test_an_operator_that_no_release_has(files: Repository) -> None:
    """An operator that no release has is an error, even if older releases are unknown."""
    write_model(files, "model.onnx", 8, 18, UNKNOWN)
    report = files.report("model.onnx", status=1)

    assert ("error", "unknown-operator", "model.onnx") in {brief(finding) for finding in report["findings"]}
    assert report["remarks"][0].startswith(
        f"model.onnx: does not load on onnxruntime 1.16.0–{RELEASES[-1]}: `Clipped` "
    )
    assert " unknown: " not in report["remarks"][0]


def test_no_cache_replaces_cached_answers(files: Repository) -> None:
    """`--no-cache` reads the model again and replaces a wrong cache entry."""
    stamped(files, "model.onnx", 10, 21)
    first = files.report("model.onnx")
    (cached,) = Path(files.environment["ONNXGATE_CACHE_DIR"], "static").glob("*.msgpack")
    entries = msgspec.msgpack.decode(cached.read_bytes(), type=dict[str, bytes])
    contents = {key: verify_checksum(key, entry) or b"" for key, entry in entries.items()}
    forged = {key: it.replace(b"IR version 10", b"IR version 12") for key, it in contents.items()}
    cached.write_bytes(msgspec.msgpack.encode({key: add_checksum(key, it) for key, it in forged.items()}))
    wrong = files.report("model.onnx")
    rerun = files.report("model.onnx", "--no-cache")

    assert wrong["findings"] != first["findings"]
    assert rerun == first
    assert files.report("model.onnx") == first


def test_a_damaged_answer_is_computed_again(files: Repository) -> None:
    """A damaged cache entry does not change the result; `-v` names the file."""
    stamped(files, "model.onnx", 10, 21)
    first = files.report("model.onnx")
    (cached,) = Path(files.environment["ONNXGATE_CACHE_DIR"], "static").glob("*.msgpack")
    damaged = cached.read_bytes().replace(b"IR version 10", b"IR version 12")
    cached.write_bytes(damaged)

    assert files.report("model.onnx") == first
    cached.write_bytes(damaged)
    assert f"damaged cache entry replaced: {cached}: " in files.run("check", "model.onnx", "-v").err
    assert "damaged cache entry" not in files.run("check", "model.onnx", "-v").err


def test_reused_static_results_are_counted(files: Repository) -> None:
    """`-v` shows the use of the cache, and other output does not."""
    stamped(files, "model.onnx", 10, 21)
    counts = [files.run("check", "model.onnx", "-v").err.partition(" reused from ")[0] for _ in range(2)]

    assert counts == ["static results: 0 of 1 model", "static results: 1 of 1 model"]
    assert files.run("check", "model.onnx").err == ""


def test_a_fix_without_a_target(files: Repository) -> None:
    """It is about the newest release, because no release is required."""
    text = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 99]> g (float[N] x) => (float[N] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text)
    write(files.folder / "trees.onnx", model)
    newest = f"the newest that onnxruntime {RELEASES[-1]} supports"

    for command in ("check", "matrix"):
        out = files.run(command, "trees.onnx", status=1).out
        assert f"fix: export at opset 5 of `ai.onnx.ml`, {newest}\n" in out


def test_an_opset_for_the_whole_model(files: Repository) -> None:
    """The suggestion names the release that it is for, in a sentence."""
    double = "g (double[N] x) => (double[N] y) { y = Selu(x) }"
    write_model(files, "selu.onnx", 8, 17, double)

    whole = f"fix: export at opset 18, at which onnxruntime {RELEASES[-1]} supports the whole model, or cast the input"
    assert whole in files.run("check", "selu.onnx", status=1).out


def test_a_release_that_fails_a_target_comes_first(files: Repository) -> None:
    """A line with `FAIL` does not begin with the releases that load the model."""
    stamped(files, "model.onnx", 10, 18)
    out = files.run("check", "model.onnx", "--target", "onnxruntime>=1.16,<1.20", status=1).out

    assert out.splitlines()[0] == (
        "FAIL  model.onnx: does not load on onnxruntime 1.16.0–1.17.3: IR version 10, supported since 1.18.0; "
        "loads on 1.18.0–1.19.2 [ir-version-too-new]"
    )
    assert "which all required" not in out


def test_fixes_of_a_target(files: Repository) -> None:
    """With `--target`, fixes are for the required releases."""
    write_model(files, "model.onnx", 8, 18, GELU)
    report = files.report("model.onnx", "--target", "onnxruntime>=1.18", status=1)

    assert (
        "export at opset 20" in {finding["rule"]: finding["fix"] for finding in report["findings"]}["unknown-operator"]
    )


def test_fixes_need_no_config(files: Repository) -> None:
    """Without a config, no fix suggests editing one, except as an alternative that creates it first."""
    files.write("page.onnx", "<!DOCTYPE html>\n<html></html>\n")
    custom = '<ir_version: 8, opset_import: ["" : 18, "acme" : 1]> g (float[N] x) => (float[N] y) { y = acme.Gelu(x) }'
    write(files.folder / "custom.onnx", onnx.parser.parse_model(custom))
    report = files.report("page.onnx", "custom.onnx", status=1)
    fixes = {finding["rule"]: finding["fix"] for finding in report["findings"] if finding["level"] == "error"}

    assert fixes.keys() == {"not-a-model", "unknown-domain"}
    assert all(fixes.values())
    assert [word for word in ("onnxgate.toml", "exclude") if word in "".join(fixes.values())] == []
    assert fixes["unknown-domain"] == (
        "run `onnxgate init`, and add the package that registers the operator to the target's `extensions`, "
        "or export the model without the operator"
    )


def test_a_raised_target_loads_the_model(files: Repository) -> None:
    """Releases that support the version fields may have no kernel data, with which the model stays undecided."""
    stamped(files, "model.onnx", 8, 15)
    report = files.report("model.onnx", "--target", "onnxruntime", status=1)

    errors = [finding for finding in report["findings"] if finding["level"] == "error"]
    assert {error["works_since"] for error in errors} == {"1.9.0"}
    assert {error["fix"].rpartition("or ")[2] for error in errors} == {"narrow the target to >=1.16"}


def test_an_opset_that_cannot_be_converted(files: Repository) -> None:
    """`onnxgate fix` is suggested only if the installed onnx supports the opset of the model."""
    stamped(files, "model.onnx", 8, 99)
    report = files.report("model.onnx", "--target", f"onnxruntime=={RELEASES[-1]}", status=1)

    assert [finding["fix"].partition(" at opset")[0] for finding in report["findings"]] == ["export"]


def test_a_release_newer_than_the_support_data(files: Repository) -> None:
    """The hint states the known releases, and how newer ones can be checked."""
    stamped(files, "model.onnx", 8, 15)
    err = files.run("check", "model.onnx", "--target", "onnxruntime==99.0", status=2).err

    known = f"onnxgate {__version__} has support data for onnxruntime 1.8.0–{RELEASES[-1]}"
    assert f"hint: {known}; for newer releases, update onnxgate or use a config (`onnxgate init`)\n" in err


@pytest.mark.parametrize(
    ("ir_version", "arguments"), [(15, ()), (10, ("--target", "onnxruntime>=1.16,<1.20"))], ids=["all", "target"]
)
def test_the_fix_command_works(files: Repository, ir_version: int, arguments: tuple[str, ...]) -> None:
    """The suggested command names the model and the target, which `onnxgate fix` needs without a config."""
    stamped(files, "a model.onnx", ir_version, 18)
    out = files.run("check", "a model.onnx", *arguments, status=1).out
    command = re.search(r"fix: run `(onnxgate fix [^`]*)`", out)
    assert command
    fixed = files.run(*shlex.split(command[1])[1:])

    assert "1 model repaired" in fixed.out
    assert files.run("check", "a model.onnx", *arguments).status == 0


def test_a_fix_that_cannot_be_verified(files: Repository) -> None:
    """The reference evaluator of onnx has no operators of other domains: `onnxgate fix` is not suggested for them."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "g (float[N] x) => (float[N] y) { y = com.microsoft.Gelu(x) }"
    )
    model = onnx.parser.parse_model(text)
    write(files.folder / "opset.onnx", model)
    model.ir_version = 99
    write(files.folder / "ir.onnx", model)
    target = ("--target", "onnxruntime==1.16.3")
    out = files.run("check", "ir.onnx", status=1).out
    out += files.run("check", "opset.onnx", "--target", "onnxruntime==1.11.1", status=1).out
    fixed = files.run("fix", "ir.onnx", *target, status=3).out

    assert "onnxgate fix" not in out
    assert "      fix: set `ir_version` to 14\n" in out
    assert (
        "      fix: export at opset 16, the newest that onnxruntime 1.11.1 supports, or raise the target to >=1.12.0\n"
        in out
    )
    assert "  not written: the reference evaluator of onnx cannot run the original model, so its outputs " in fixed
    assert "onnxgate check" not in fixed


def test_data_outside_of_the_folder(files: Repository) -> None:
    """Without a repository, `onnxgate fix` reads data only in the current folder, and is suggested only for that."""
    model = parse("g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
    data = make_external(model, "../w.bin")
    write(files.folder / "models" / "m.onnx", model)
    (files.folder / "w.bin").write_bytes(data)
    inside = files.at(files.folder / "models")
    outer, inner = files.run("check", "models/m.onnx", status=1).out, inside.run("check", "m.onnx", status=1).out
    fixed = inside.run("fix", "m.onnx", "--target", f"onnxruntime=={RELEASES[-1]}", status=1).out

    assert f"fix: run `onnxgate fix models/m.onnx --target onnxruntime=={RELEASES[-1]}` to move the data into " in outer
    assert "      fix: save the model with its data in the same folder\n" in inner
    assert f"`../w.bin` is outside the folder `{inside.folder}`\n" in fixed
    assert fixed.endswith("\n1 model not repaired; 1 finding remains: `external-data-escapes` (not fixed)\n")


def test_a_file_elsewhere(files: Repository) -> None:
    """Absolute paths and paths outside of the folder are reported as given."""
    stamped(files, "elsewhere/model.onnx", 8, 18)
    absolute = (files.folder / "elsewhere" / "model.onnx").as_posix()
    (files.folder / "here").mkdir()
    inside = files.at(files.folder / "here")
    reports = [inside.report(path) for path in (absolute, "../elsewhere/model.onnx")]

    assert [report["models"][0]["path"] for report in reports] == [absolute, "../elsewhere/model.onnx"]
    assert all(": loads on onnxruntime 1.16.0–" in report["remarks"][0] for report in reports)


def test_releases_without_kernel_data_are_undecided(files: Repository) -> None:
    """The hint names the command that loads the model on releases without kernel data."""
    stamped(files, "model.onnx", 7, 13)
    report = files.report("--target", "onnxruntime<1.16", "model.onnx", status=3)
    (undecided,) = report["undecided"]

    assert report["verdict"] == "undecided"
    assert undecided["reason"] == "could not be predicted on onnxruntime 1.8.0–1.15.1"
    assert undecided["hint"] == (
        "run `onnxgate matrix --verify --target 'onnxruntime<1.16' model.onnx` to load the model on each release"
    )


def test_one_required_release_without_kernel_data(files: Repository) -> None:
    """A model that loads on the other releases of the target is not a pass."""
    stamped(files, "model.onnx", 7, 13)
    report = files.report("--target", "onnxruntime>=1.15.1,<1.17", "model.onnx", status=3)

    assert [entry["reason"] for entry in report["undecided"]] == ["could not be predicted on onnxruntime 1.15.1"]


@pytest.mark.parametrize("content", ["", "<!DOCTYPE html>\n<html></html>\n"])
def test_a_broken_file(files: Repository, content: str) -> None:
    """A file that is not a model is an error; the other models are still checked."""
    stamped(files, "good.onnx", 7, 13)
    files.write("broken.onnx", content)
    report = files.report("good.onnx", "broken.onnx", status=1)

    assert [(finding["level"], finding["model"]) for finding in report["findings"]] == [("error", "broken.onnx")]
    assert [re.split("[:,]", remark)[0] for remark in report["remarks"]] == [
        "good.onnx",
        "onnxgate has no kernel data for onnxruntime 1.8.0–1.15.1",
    ]


def test_a_pointer_is_undecided(files: Repository) -> None:
    """The result depends on content that was not fetched."""
    (files.folder / "models").mkdir()
    files.write("models/pointer.onnx", POINTER)
    report = files.report("models", status=3)
    result = files.run("check", "models", status=3)

    assert report["verdict"] == "undecided"
    assert [finding["rule"] for finding in report["findings"]] == []
    assert {entry["model"] for entry in report["undecided"]} == {"models/pointer.onnx"}
    assert result.out.startswith("?     models/pointer.onnx: the file is a Git LFS pointer")
    assert '\n      hint: run `git lfs pull --include "models/pointer.onnx"`' in result.out
    assert last_line(result.out) == f"undecided: 1 model checked against {EXTENT}: 1 undecided; {NOT_RUN}"


@pytest.mark.parametrize(
    ("requirement", "opset", "status"),
    [
        ("onnxruntime>=1.18,<1.20", 21, 0),
        ("onnxruntime>=1.16,<1.18", 21, 1),
        ("onnxruntime>=1.16,<1.20", 21, 1),
        ("onnxruntime==1.18.*", 21, 0),
    ],
)
def test_target(files: Repository, requirement: str, opset: int, status: int) -> None:
    """A target is a requirement: a model that does not load on one of its releases is an error."""
    stamped(files, "model.onnx", 8, opset)
    report = files.report("--target", requirement, "model.onnx", status=status)
    releases = {runtime["version"] for runtime in report["runtimes"]}

    assert releases
    assert releases < set(RELEASES)
    assert "1.31.1" not in releases
    assert [brief(finding) for finding in report["findings"]] == [("error", "opset-too-new", "model.onnx")] * status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "hint: specify models or folders, such as `onnxgate check .`, or run `onnxgate init`"),
        (("--target", "", "model.onnx"), "error: `--target` is empty"),
        (("nowhere.onnx",), "error: `nowhere.onnx` does not exist"),
        (("model.onx",), "hint: did you mean `model.onnx`?"),
        (("--target", "onnxruntme>=1.18", "model.onnx"), "hint: did you mean `onnxruntime>=1.18`?"),
        (("--target", "onnxruntime>=1.18", "--target", "onnxruntime<1.20", "model.onnx"), "can be given only once"),
        (("--stage", "runtime", "model.onnx"), "error: `--stage` requires a config"),
        (("--stage", "file,runtime", "model.onnx"), "error: `--stage` requires a config"),
        (("--stage", "lock", "model.onnx"), "error: `--stage` requires a config"),
        (("--stage", "file", "model.onnx"), "error: `--stage` requires a config"),
        (("--no-ignores", "model.onnx"), "error: `--no-ignores` requires a config"),
        (("--case", "sample", "model.onnx"), "error: `--case` requires a config"),
        (("--seed", "4", "model.onnx"), "error: `--seed` requires a config"),
        (("--target", "tensorflow", "model.onnx"), "error: onnxgate has no support data for `tensorflow`"),
        (("--target", "onnxruntime>=99", "model.onnx"), "error: no known release matches `onnxruntime>=99`"),
        (("--target", "onnx runtime", "model.onnx"), "error: `onnx runtime` is not a valid requirement"),
    ],
)
def test_usage(files: Repository, arguments: tuple[str, ...], message: str) -> None:
    """A usage error prints no verdict."""
    stamped(files, "model.onnx", 7, 13)

    assert message in files.run("check", *arguments, status=2).err


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("1.18", "onnxruntime==1.18.*"),
        ("1.18.1", "onnxruntime==1.18.1"),
        ("v1.18", "onnxruntime==1.18.*"),
        ("==1.18.*", "onnxruntime==1.18.*"),
        (">=1.18,<1.20", "onnxruntime>=1.18,<1.20"),
        ("onnxruntime 1.18", "onnxruntime==1.18.*"),
    ],
)
@pytest.mark.parametrize("name", ["check", "matrix"])
def test_a_target_without_operator_or_engine(files: Repository, target: str, meant: str, name: str) -> None:
    """The suggested `--target` works."""
    stamped(files, "model.onnx", 7, 13)

    assert files.run(name, "model.onnx", "--target", target, status=2).err == (
        f"error: `{target}` is not a valid requirement\nhint: did you mean `{meant}`?\n"
    )
    files.run(name, "model.onnx", "--target", meant)


def test_a_config_without_a_lock(files: Repository) -> None:
    """The hint names the command that creates the lock."""
    files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
    stamped(files, "model.onnx", 7, 13)
    result = files.run("check", status=2)

    assert "hint: run `onnxgate lock`" in result.err
    assert result.out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text on other systems")
@pytest.mark.parametrize("configured", [True, False])
def test_undecodable_file_name_is_a_usage_error(files: Repository, configured: bool) -> None:
    """A file name that is not UTF-8 is a usage error, because reports could not contain it."""
    name = os.fsdecode(b"b\xff.onnx")
    stamped(files, name, 7, 13)
    if configured:
        files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
        files.write("onnxgate.lock", "version = 1\nrevision = 0\ntables = []\n")
    result = files.run("check", "--static", *([] if configured else [name]), status=2)

    assert "name `b\\udcff.onnx` is not valid UTF-8\nhint: rename " in result.err.replace("name of", "name")
