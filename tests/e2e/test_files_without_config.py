"""`onnxgate check` on files, where there is no config: on which releases each of them loads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.harness.repositories.user_repository import Repository, brief
from tests.harness.version_models import EQUAL, GELU, RELEASES, UNKNOWN, stamped, write_model


def test_loads_on_all(files: Repository) -> None:
    """Where it loads, and where that is not known; nothing is installed, and the last line says what was not done."""
    stamped(files, "model.onnx", 7, 13)
    ended = files.run("check", "model.onnx")

    assert (
        f"model.onnx: loads on onnxruntime 1.16.0–{RELEASES[-1]}; kernels are not known on 1.8.0–1.15.1\n" in ended.out
    )
    assert ended.out.splitlines()[-1] == (
        f"pass: 1 model on {len(RELEASES)} runtimes; no config: predicted from support data, nothing was run"
    )


def test_loads_on_some(files: Repository) -> None:
    """What older releases refuse is a note, with the release from which on it works."""
    stamped(files, "model.onnx", 10, 21)
    report = files.report("model.onnx")

    assert {brief(each) for each in report["findings"]} == {
        ("note", "ir-version-too-new", "model.onnx"),
        ("note", "opset-too-new", "model.onnx"),
    }
    assert {each["works_since"] for each in report["findings"]} == {"1.18.0"}
    assert report["remarks"] == [
        f"model.onnx: loads on onnxruntime 1.18.0–{RELEASES[-1]}; 1.17 does not support IR version 10 "
        "(the first of 2 reasons)"
    ]


def test_operators_and_types_are_judged(files: Repository) -> None:
    """A model whose stamps every release since 1.16 takes, and whose types only newer ones implement."""
    write_model(files, "model.onnx", 8, 14, EQUAL)
    report = files.report("model.onnx")

    assert ("note", "missing-kernel", "model.onnx") in {brief(each) for each in report["findings"]}
    assert report["remarks"][0].startswith("model.onnx: loads on onnxruntime 1.21.0–")


def test_loads_on_none(files: Repository) -> None:
    """An IR version that no release reads closes the gate; what only old ones refuse beside that is a note."""
    stamped(files, "model.onnx", 14, 18)
    report = files.report("model.onnx", status=1)

    assert [brief(each) for each in report["findings"]] == [
        ("error", "ir-version-too-new", "model.onnx"),
        ("note", "opset-too-new", "model.onnx"),
    ]
    assert report["remarks"][0].startswith(f"model.onnx: loads on none of {len(RELEASES)} releases; ")


def test_an_operator_that_no_release_has(files: Repository) -> None:
    """It closes the gate, also where old releases leave the question open."""
    write_model(files, "model.onnx", 8, 18, UNKNOWN)
    report = files.report("model.onnx", status=1)

    assert ("error", "unknown-operator", "model.onnx") in {brief(each) for each in report["findings"]}
    assert report["remarks"][0].startswith(
        "model.onnx: loads on none of 42 releases; 1.31 refuses it: `Clipped` is no "
    )
    assert report["remarks"][0].endswith("; not known on 1.14.0–1.15.1")


def test_no_cache_replaces_cached_answers(files: Repository) -> None:
    """Without a config, too, `--no-cache` reads the model itself: it is the way out of a cache that is wrong."""
    stamped(files, "model.onnx", 10, 21)
    first = files.report("model.onnx")
    (cached,) = Path(files.environment["ONNXGATE_CACHE_DIR"], "static").glob("*.msgpack")
    content = cached.read_bytes()
    cached.write_bytes(content.replace(b"IR version 10", b"IR version 12"))
    wrong = files.report("model.onnx")
    anew = files.report("model.onnx", "--no-cache")

    assert wrong["findings"] != first["findings"]
    assert anew == first
    assert files.report("model.onnx") == first


def test_ways_out_promise_no_lock(files: Repository) -> None:
    """There is none; they are of the releases that were asked for."""
    write_model(files, "model.onnx", 8, 18, GELU)
    report = files.report("model.onnx", "--target", "onnxruntime>=1.18", status=1)

    assert {each["rule"]: each["fix"] for each in report["findings"]}["unknown-operator"] == (
        "export at opset 20: all required runtimes support the whole model there"
    )


def test_a_file_elsewhere(files: Repository) -> None:
    """By an absolute path, and by one that leads out of the folder: named as it was given."""
    stamped(files, "elsewhere/model.onnx", 8, 18)
    absolute = (files.folder / "elsewhere" / "model.onnx").as_posix()
    (files.folder / "here").mkdir()
    inside = files.at(files.folder / "here")
    reports = [inside.report(path) for path in (absolute, "../elsewhere/model.onnx")]

    assert [report["models"][0]["path"] for report in reports] == [absolute, "../elsewhere/model.onnx"]
    assert all(": loads on onnxruntime 1.16.0–" in report["remarks"][0] for report in reports)


def test_what_cannot_be_told_is_no_pass(files: Repository) -> None:
    """Of releases without kernels in the support data nothing is promised, and the way to find out is named."""
    stamped(files, "model.onnx", 7, 13)
    report = files.report("--target", "onnxruntime<1.16", "model.onnx", status=3)

    assert report["verdict"] == "undecided"
    assert [each["reason"] for each in report["undecided"]] == [
        "whether it loads on onnxruntime 1.8.0–1.15.1 cannot be told"
    ]
    assert [each["hint"] for each in report["undecided"]] == ["`onnxgate matrix --verify` really loads it there"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<!DOCTYPE html>\n<html></html>\n",
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n",
    ],
)
def test_a_broken_file(files: Repository, content: str) -> None:
    """A file that is no model closes the gate; the one beside it is judged all the same."""
    stamped(files, "good.onnx", 7, 13)
    files.write("broken.onnx", content)
    report = files.report("good.onnx", "broken.onnx", status=1)

    assert [(each["level"], each["model"]) for each in report["findings"]] == [("error", "broken.onnx")]
    assert [each.partition(":")[0] for each in report["remarks"]] == ["good.onnx"]


@pytest.mark.parametrize(
    ("requirement", "opset", "status"),
    [("onnxruntime>=1.18,<1.20", 21, 0), ("onnxruntime>=1.16,<1.18", 21, 1), ("onnxruntime>=1.16,<1.20", 21, 0)],
)
def test_target(files: Repository, requirement: str, opset: int, status: int) -> None:
    """A requirement in place of a config: judged against its releases alone, and closed where none loads the file."""
    stamped(files, "model.onnx", 8, opset)
    report = files.report("--target", requirement, "model.onnx", status=status)
    releases = {each["version"] for each in report["runtimes"]}

    assert releases
    assert releases < set(RELEASES)
    assert "1.31.1" not in releases


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "hint: name the models to check, or run `onnxgate init`"),
        (("nowhere.onnx",), "error: `nowhere.onnx` does not exist"),
        (("--target", "tensorflow", "model.onnx"), "error: there is no data on `tensorflow`"),
        (("--target", "onnxruntime>=99", "model.onnx"), "error: no release that there is data of fits"),
        (("--target", "onnx runtime", "model.onnx"), "error: `onnx runtime` is no requirement"),
    ],
)
def test_usage(files: Repository, arguments: tuple[str, ...], said: str) -> None:
    """What cannot be judged is an error of usage, and no verdict."""
    stamped(files, "model.onnx", 7, 13)

    assert said in files.run("check", *arguments, status=2).err


def test_a_config_without_a_lock(files: Repository) -> None:
    """It says what to run."""
    files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
    stamped(files, "model.onnx", 7, 13)
    ended = files.run("check", status=2)

    assert "hint: run `onnxgate lock`" in ended.err
    assert ended.out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text on other systems")
@pytest.mark.parametrize("configured", [True, False])
def test_a_name_that_is_no_text(files: Repository, configured: bool) -> None:
    """It could be named in no report: an error that says so, and no bug of ours."""
    name = os.fsdecode(b"b\xff.onnx")
    stamped(files, name, 7, 13)
    if configured:
        files.write("onnxgate.toml", '[targets.server]\nruntime = "onnxruntime>=1.18"\n')
        files.write("onnxgate.lock", "version = 1\nrevision = 0\n")
    ended = files.run("check", "--static", *([] if configured else [name]), status=2)

    assert ended.err.startswith("error: the name of `b\\udcff.onnx` is not UTF-8\nhint: rename it")
