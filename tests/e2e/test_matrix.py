"""`onnxgate matrix`: on which releases models load, predicted and verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import onnx.parser
import pytest

from onnxgate.core.matrix import Matrix
from onnxgate.core.report_json import build_schema
from tests.harness.repositories.user_repository import Repository
from tests.harness.version_models import EQUAL, RELEASES, UNKNOWN, stamped, write_model

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 16\n"

QUANTIZED = (
    "g (float[1, 32] x) => (float[1, 1] y) <uint8[1, 1, 16] b = {" + ", ".join("0" * 16) + "}, float[1] s = {1.0}> {"
    " [product] y = com.microsoft.MatMulNBits <K = 32, N = 1, bits = 4, block_size = 32> (x, b, s) }"
)


TWINS = "g (float[N] x) => (float[N] y) <float[N] z> { [twin] z = Abs(x) [twin] y = Abs(z) }"


def matrix(repository: Repository, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Return the JSON output, validated against the published schema."""
    decoded: dict[str, Any] = json.loads(repository.run("matrix", "--output", "json", *arguments, status=status).out)
    jsonschema.Draft202012Validator(build_schema(Matrix, "")).validate(decoded)
    assert decoded["exit"] == status
    return decoded


def by_release(model: dict[str, Any], field: str = "predicted") -> dict[str, str]:
    """Return one field of a model's entries, by release."""
    return {runtime["runtime"].removeprefix("onnxruntime "): runtime[field] for runtime in model["runtimes"]}


def test_every_known_release(files: Repository) -> None:
    """Each release that does not load the model has its reasons; some releases have no kernel data."""
    stamped(files, "model.onnx", 8, 15)
    [model] = matrix(files, "model.onnx")["models"]
    predicted = by_release(model)

    assert list(predicted) == list(RELEASES)
    assert [predicted[each] for each in ("1.8.1", "1.9.0", "1.15.1", "1.16.0", "1.31.1")] == [
        *("refused", "unknown", "unknown", "loads", "loads")
    ]
    assert model["runtimes"][0]["reasons"] == [
        {
            "rule": "ir-version-too-new",
            "node": "",
            "message": "uses IR version 8",
            "detail": "supports up to 7",
            "works_since": "1.9.0",
        },
        {
            "rule": "opset-too-new",
            "node": "",
            "message": "imports opset 15 of `ai.onnx`",
            "detail": "supports up to 14",
            "works_since": "1.9.0",
        },
    ]
    assert model["runtimes"][2]["reasons"] == [
        {"rule": "no-support-data", "node": "", "message": "no kernel data", "detail": "", "works_since": ""}
    ]
    assert model["runtimes"][-1]["reasons"] == []


def test_kernels_and_patches_are_distinguished(files: Repository) -> None:
    """Predictions depend on types, and patches of one minor release may differ."""
    write_model(files, "equal.onnx", 8, 14, EQUAL)
    write_quantized(files)
    equal, quantized = matrix(files, "equal.onnx", "quantized.onnx", "--target", "onnxruntime>=1.16,<1.22", status=1)[
        "models"
    ]

    assert by_release(equal)["1.20.1"] == "refused"
    assert by_release(equal)["1.21.0"] == "loads"
    assert {r: p for r, p in by_release(quantized).items() if r < "1.17"} == {
        "1.16.0": "refused",
        "1.16.1": "refused",
        "1.16.2": "loads",
        "1.16.3": "loads",
    }
    assert {(reason["rule"], reason["node"]) for reason in quantized["runtimes"][0]["reasons"]} == {
        ("unknown-operator", "product")
    }


def write_quantized(repository: Repository) -> None:
    """Write a model that only some patches of 1.16 support."""
    import onnx.parser

    from tests.harness.models import write

    head = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
    write(repository.folder / "quantized.onnx", onnx.parser.parse_model(head + QUANTIZED))


@pytest.mark.parametrize(
    ("arguments", "verdict", "status"),
    [
        ((), "pass", 0),
        (("--target", "onnxruntime>=1.18"), "pass", 0),
        (("--target", "onnxruntime>=1.17"), "fail", 1),
        (("--target", "onnxruntime<1.18"), "fail", 1),
        (("--target", "onnxruntime>=1.17", "--select", "newest"), "pass", 0),
    ],
)
def test_the_verdict(files: Repository, arguments: tuple[str, ...], verdict: str, status: int) -> None:
    """One release that loads the model is enough, unless a target requires more."""
    stamped(files, "old.onnx", 7, 13)
    stamped(files, "new.onnx", 10, 21)

    assert matrix(files, "old.onnx", "new.onnx", *arguments, status=status)["verdict"] == verdict


@pytest.mark.parametrize("target", ["onnxruntime<1.16", "onnxruntime>=1.15.1,<1.17"])
def test_a_required_release_without_kernel_data(files: Repository, target: str) -> None:
    """A required release without kernel data is undecided."""
    stamped(files, "model.onnx", 7, 13)
    result = files.run("matrix", "model.onnx", "--target", target, status=3)

    assert "\n?     model.onnx: " in result.out
    assert f"\n      hint: run `onnxgate matrix --verify --target '{target}' model.onnx`" in result.out
    assert result.out.splitlines()[-1].startswith("undecided: 1 model checked against ")


def test_the_lines_are_those_of_check(files: Repository) -> None:
    """Both commands print the same lines; `matrix` also prints the table."""
    stamped(files, "models/a.onnx", 10, 21)
    stamped(files, "models/b.onnx", 7, 13)
    stamped(files, "models/c.onnx", 14, 18)
    files.write("models/d.onnx", "<html></html>")
    checked, shown = (files.run(name, "models", status=1).out for name in ("check", "matrix"))
    lines = checked.rpartition("\n\n")[0]

    assert f"\n\n{lines}\n\n" in shown


@pytest.mark.parametrize(
    ("select", "releases"),
    [
        ("all", ["1.16.0", "1.16.1", "1.16.2", "1.16.3", "1.17.0", "1.17.1", "1.17.3", "1.18.0", "1.18.1"]),
        ("minors", ["1.16.3", "1.17.3", "1.18.1"]),
        ("bounds", ["1.16.3", "1.18.1"]),
        ("newest", ["1.18.1"]),
    ],
)
def test_select(files: Repository, select: str, releases: list[str]) -> None:
    """`--select` has the same values as `select` in a config."""
    stamped(files, "model.onnx", 7, 13)
    output = matrix(files, "model.onnx", "--target", "onnxruntime>=1.16,<1.19", "--select", select)

    assert list(by_release(output["models"][0])) == releases


def test_a_file_that_is_not_a_model(files: Repository) -> None:
    """All releases refuse a file that is not a model; the other models are still checked."""
    files.write("broken.onnx", "")
    stamped(files, "good.onnx", 8, 18)
    broken, good = matrix(files, "broken.onnx", "good.onnx", status=1)["models"]

    assert set(by_release(broken).values()) == {"refused"}
    assert {reason["rule"] for entry in broken["runtimes"] for reason in entry["reasons"]} == {"not-a-model"}
    assert by_release(good)["1.31.1"] == "loads"


def test_a_pointer_is_undecided(files: Repository) -> None:
    """The result depends on content that was not fetched."""
    (files.folder / "models").mkdir()
    files.write("models/m.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n")
    [model] = matrix(files, "models", status=3)["models"]
    out = files.run("matrix", "models", status=3).out

    assert set(by_release(model).values()) == {"unknown"}
    assert "\n?     models/m.onnx: the file is a Git LFS pointer" in out
    assert '\n      hint: run `git lfs pull --include "models/m.onnx"`' in out


def test_a_model_that_is_not_valid(files: Repository) -> None:
    """Loading is not predicted for an invalid model."""
    write_model(files, "model.onnx", 8, 18, TWINS)
    [model] = matrix(files, "model.onnx", "--target", "onnxruntime>=1.16", status=1)["models"]

    assert set(by_release(model).values()) == {"unknown"}
    assert {(reason["rule"], reason["node"]) for entry in model["runtimes"] for reason in entry["reasons"]} == {
        ("invalid-model", "twin")
    }


def test_the_order_of_reasons(files: Repository) -> None:
    """An invalid model precedes its data: the first reason may be shown alone. An unknown operator follows an opset."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 27, "ai.onnx.ml" : 99]> {UNKNOWN}')
    onnx.save(model, files.folder / "versions.onnx")
    twins = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {TWINS}')
    weight = twins.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    twins.graph.node.add(op_type="Neg", input=["w"], output=["negative"])
    weight.external_data.add(key="location", value="weights.bin")
    onnx.save(twins, files.folder / "data.onnx")
    files.write("weights.bin", POINTER)
    data, versions = matrix(files, "data.onnx", "versions.onnx", "--target", "onnxruntime==1.31.1", status=1)["models"]

    assert [reason["rule"] for reason in data["runtimes"][0]["reasons"]] == ["invalid-model", ""]
    assert [reason["rule"] for reason in versions["runtimes"][0]["reasons"]] == ["opset-too-new", "opset-experimental"]


def test_data_that_is_too_short(files: Repository) -> None:
    """No release loads the model: `check` and `matrix` fail alike."""
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    model = onnx.parser.parse_model(text)
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    weight.external_data.add(key="location", value="weights.bin")
    onnx.save(model, files.folder / "model.onnx")
    files.write("weights.bin", "short")
    checked, shown = (files.run(name, "model.onnx", status=1).out for name in ("check", "matrix"))
    line = checked.splitlines()[0]

    assert line.startswith("FAIL  model.onnx: stores weights in `weights.bin`, which ")
    assert line in shown


def test_an_operator_that_no_release_has(files: Repository) -> None:
    """A model with an unknown operator fails, even if older releases are unknown."""
    write_model(files, "model.onnx", 8, 18, UNKNOWN)
    out = files.run("matrix", "model.onnx", "-v", status=1).out

    assert f"FAIL  model.onnx: does not load on onnxruntime 1.16.0–{RELEASES[-1]}: `Clipped` " in out
    assert "; 1.8.0–1.13.1 refused: opset 18 " in out
    assert " onnxruntime 1.14.0–1.15.1: no-support-data: no kernel data\n" in out
    assert ": unknown-operator: `Clipped` " in out
    assert "invalid-model" not in out


def test_folders_and_files(files: Repository) -> None:
    """A folder selects all models below it; each model has a row."""
    stamped(files, "some/deep/b.onnx", 8, 18)
    stamped(files, "some/a.onnx", 8, 18)
    stamped(files, "c.onnx", 8, 18)

    assert [model["path"] for model in matrix(files, "some", "c.onnx")["models"]] == [
        *("some/a.onnx", "some/deep/b.onnx", "c.onnx")
    ]


def test_hidden_folders_are_not_entered(files: Repository) -> None:
    """Hidden folders such as `.venv`, which may contain thousands of test models, are skipped unless named."""
    stamped(files, "some/.venv/lib/a.onnx", 8, 18)
    stamped(files, "some/b.onnx", 8, 18)

    assert [model["path"] for model in matrix(files, "some")["models"]] == ["some/b.onnx"]
    assert [model["path"] for model in matrix(files, "some/.venv")["models"]] == ["some/.venv/lib/a.onnx"]


def test_a_model_named_twice(files: Repository) -> None:
    """A model that is selected by its folder and by its path is listed once."""
    stamped(files, "some/a.onnx", 8, 18)

    assert [model["path"] for model in matrix(files, "some", "some/a.onnx", "./some/a.onnx")["models"]] == [
        "some/a.onnx"
    ]


def test_no_config_is_read(files: Repository) -> None:
    """`matrix` does not read the config, so even an invalid one is not an error."""
    files.write("onnxgate.toml", "nonsense = [")
    stamped(files, "model.onnx", 8, 18)

    assert len(matrix(files, "model.onnx")["models"][0]["runtimes"]) == len(RELEASES)


def test_outputs(files: Repository) -> None:
    """Formats may be written to files; text is still printed."""
    stamped(files, "model.onnx", 10, 21)
    result = files.run("matrix", "model.onnx", "--output", "json=out/m.json", "--output", "markdown=out/m.md")

    assert json.loads(files.read("out/m.json"))["verdict"] == "pass"
    assert "| onnxruntime | 1.8–1.17 | 1.18–1.32 |\n" in files.read("out/m.md")
    assert (
        "ok    model.onnx: loads on onnxruntime 1.18.0–1.32.0; "
        "1.8.0–1.17.3 refused: IR version 10 and opset 21 of `ai.onnx`, supported since 1.18.0\n" in result.out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "hint: specify models or folders, such as `onnxgate matrix .`"),
        (("model.onnx", "--target", ""), "error: `--target` is empty"),
        (("nowhere.onnx",), "error: `nowhere.onnx` does not exist"),
        (("model.onnx", "--target", "onnxruntime>=99"), "error: no known release matches `onnxruntime>=99`"),
        (("model.onnx", "--output", "jsn"), "error: unknown format `jsn`; did you mean `json`"),
        (("model.onnx", "--output", "github"), "error: unknown format `github`"),
        (("model.onnx", "--target", "onnxruntime", "--target", "onnxruntime"), "can be given only once"),
        (("model.onnx", "--select", "some"), "Invalid value for '--select'"),
    ],
)
def test_usage(files: Repository, arguments: tuple[str, ...], message: str) -> None:
    """Invalid values are usage errors."""
    stamped(files, "model.onnx", 7, 13)

    assert message in files.run("matrix", *arguments, status=2).err


def test_verification_that_cannot_be_done(files: Repository) -> None:
    """Without a package index the prediction remains, and the verdict is undecided."""
    stamped(files, "model.onnx", 8, 18)
    arguments = ("model.onnx", "--verify", "--target", "onnxruntime>=1.18,<1.20", "--select", "minors")
    output = matrix(files, *arguments, status=3)
    [model] = output["models"]

    assert output["verdict"] == "undecided"
    assert set(by_release(model).values()) == {"loads"}
    assert set(by_release(model, "observed").values()) == {"unavailable"}
    assert all("cannot query the package index" in error for error in by_release(model, "error").values())


@pytest.mark.index
def test_verified(command: Repository, tmp_path: Path) -> None:
    """Each model is loaded on each release, as predicted; no lock is written."""
    files = command.at(tmp_path)
    write_quantized(files)
    stamped(files, "new.onnx", 10, 21)
    files.write("broken.onnx", "<html></html>")
    names = ("broken.onnx", "new.onnx", "quantized.onnx")
    output = matrix(files, *names, "--verify", "--target", "onnxruntime>=1.16.1,<1.19,!=1.16.2", status=1)
    seen = [by_release(model, "observed") for model in output["models"]]

    assert [by_release(model) for model in output["models"]] == seen
    assert set(seen[0].values()) == {"refused"}
    assert {release for release, what in seen[1].items() if what == "loads"} == {"1.18.0", "1.18.1"}
    assert {release for release, what in seen[2].items() if what == "refused"} == {"1.16.1"}
    assert "MatMulNBits" in by_release(output["models"][2], "error")["1.16.1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@pytest.mark.index
def test_verify_decides_unknown_results(command: Repository, tmp_path: Path) -> None:
    """Loading the model decides the result for a release without kernel data."""
    files = command.at(tmp_path)
    stamped(files, "model.onnx", 8, 18)
    result = files.run("matrix", "model.onnx", "--verify", "--target", "onnxruntime==1.15.1")

    assert "loads on onnxruntime 1.15.1\n" in result.out
    assert result.out.splitlines()[-1].startswith("pass: 1 model checked against 1 release; 1 result verified (")
