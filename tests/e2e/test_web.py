"""A repository with ONNX Runtime Web and ONNX Runtime as targets."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxgate.runtimes.protocol import WORKER_FOLDER
from tests.conftest import ROOT, need
from tests.e2e.conftest import PROJECTS, Make
from tests.harness.repositories.checkout import copy_tree
from tests.harness.repositories.user_repository import Repository
from tests.runtimes.engines.test_web import npm_trouble

pytestmark = pytest.mark.index

TARGETS = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"

[targets.web]
runtime = "onnxruntime-web>=1.30,<1.31"

[[model]]
path = "models/classifier.onnx"
sizes = { batch = [1, 3] }

[[model]]
path = "models/encoder.onnx"
sizes = { batch = [1, 3], sequence = [16, 50] }
"""
PYTHON, WEB = "onnxruntime 1.31.1", "onnxruntime-web 1.30.0"
MODELS = {
    "new.onnx": '<ir_version: 11, opset_import: ["" : 23]> g (float[N] x) => (float[N] y) { y = Abs(x) }',
    "plain.onnx": '<ir_version: 9, opset_import: ["" : 20]> g (float[N] x) => (float[N] y) { y = Gelu(x) }',
    "squares.onnx": '<ir_version: 8, opset_import: ["" : 13]> g (double[2, 2] x) => (double y) { y = Det(x) }',
    "types.onnx": '<ir_version: 9, opset_import: ["" : 19]> g (bfloat16[N] x) => (float[N] y) { y = Cast<to=1>(x) }',
}
REFUSED = '<ir_version: 8, opset_import: ["" : 17, "d" : 1]> g (float[N] x) => (float[N] y) { y = d.MyOp (x) }'


@pytest.fixture
def web(
    project: Callable[[str], Repository], command: Repository, create_once: Callable[[str, Make], Path]
) -> Repository:
    """Return the quickstart project, locked for both engines."""
    need("node")
    if trouble := npm_trouble():
        pytest.skip(trouble)

    def make(folder: Path) -> None:
        locked = command.at(copy_tree(ROOT / PROJECTS / "quickstart", folder / "project"))
        locked.write("onnxgate.toml", TARGETS)
        (locked.folder / "onnxgate.lock").unlink()
        locked.run("lock")

    repository, locked = project("quickstart"), create_once("web", make) / "project"
    for name in ("onnxgate.toml", "onnxgate.lock"):
        shutil.copy(locked / name, repository.folder)
    return repository


def test_both_engines_agree(web: Repository) -> None:
    """Each model runs on both engines at each size and is compared; both engines have support data."""
    report = web.report()
    compared = [
        measurement for measurement in report["measured"] if measurement["pair"].startswith(f"{WEB} against {PYTHON}")
    ]

    assert {cell["runtime"]: cell["state"] for cell in report["cells"]} == {PYTHON: "pass", WEB: "pass"}
    assert {each["model"] for each in compared} == {"models/classifier.onnx", "models/encoder.onnx"}
    assert all(each["value"] <= each["bound"] for each in compared)
    assert [] == report["findings"]
    assert ([], []) == (report["undecided"], report["skipped"])


def test_predictions_agree_with_real_loads(command: Repository, tmp_path: Path) -> None:
    """Releases of ONNX Runtime Web load what is predicted: new versions, a missing kernel, a type of an input."""
    need("node")
    if trouble := npm_trouble():
        pytest.skip(trouble)
    files = command.at(tmp_path)
    for name, text in MODELS.items():
        (tmp_path / name).write_bytes(onnx.parser.parse_model(text).SerializeToString())
    target = ("--target", "onnxruntime-web>=1.20", "--select", "bounds")
    result = files.run("matrix", *MODELS, "--verify", "--output", "json", *target, status=1)
    models = json.loads(result.out)["models"]
    checked = files.run("check", "--static", "new.onnx", "--target", "onnxruntime-web>=1.20", status=1)

    assert {
        "new.onnx": ["refused", "loads"],
        "plain.onnx": ["loads", "loads"],
        "squares.onnx": ["refused", "refused"],
        "types.onnx": ["loads", "refused"],
    } == {model["path"]: [entry["predicted"] for entry in model["runtimes"]] for model in models}
    assert all(entry["predicted"] == entry["observed"] for model in models for entry in model["runtimes"])
    assert "does not load on onnxruntime-web 1.20.0–1.22.0" in checked.out


def test_a_refusal_is_reported_once(web: Repository) -> None:
    """A prediction explains the refusal, also if the runtime reports no message or the number of a type."""
    web.write("onnxgate.toml", 'models = ["models/n*.onnx"]\n[targets.web]\nruntime = "onnxruntime-web==1.22.0"\n')
    for name in ("new.onnx", "types.onnx"):
        model = onnx.parser.parse_model(MODELS[name])
        (web.folder / "models" / f"n-{name}").write_bytes(model.SerializeToString())
    (web.folder / "onnxgate.lock").unlink()
    web.run("lock")
    report = web.report(status=1)

    assert [
        ("models/n-new.onnx", "ir-version-too-new"),
        ("models/n-new.onnx", "opset-too-new"),
        ("models/n-types.onnx", "type-mismatch"),
    ] == sorted((it["model"], it["rule"]) for it in report["findings"] if it["level"] == "error")


def test_a_second_lock_is_the_first(web: Repository) -> None:
    """Locking again without a registry writes the same lock, which contains no URL."""
    first = web.read("onnxgate.lock")
    web.with_environment(npm_config_registry="http://127.0.0.1:9").run("lock", "--offline")
    web.run("lock", "--check", "--offline")

    assert first == web.read("onnxgate.lock")
    assert first.count("[[npm]]\n") == 2
    assert "http" not in first


def test_a_model_that_it_refuses_closes_the_gate(web: Repository) -> None:
    """The finding contains the error message of the runtime."""
    (web.folder / "models" / "refused.onnx").write_bytes(onnx.parser.parse_model(REFUSED).SerializeToString())
    web.run("lock", "--offline")
    findings = [
        finding for finding in web.report("models/refused.onnx", status=1)["findings"] if WEB in finding["runtimes"]
    ]

    assert any(finding["level"] == "error" and "MyOp" in finding["message"] for finding in findings)


def test_without_node(web: Repository, tmp_path: Path) -> None:
    """Without Node.js, the check is undecided with a reason; a target that is not required is skipped."""
    bare = web.with_environment(PATH=str(tmp_path))
    output = bare.report(status=3)["undecided"]
    web.edit("onnxgate.toml", '<1.31"', '<1.31"\nrequired = false')
    skipped = bare.report()["skipped"]

    assert {("`node` was not found on PATH", WEB)} == {(each["reason"], each["runtime"]) for each in output}
    assert WEB in {entry["runtime"] for entry in skipped}


def test_the_wheel_has_the_worker(installed: Path) -> None:
    """The wheel contains all files of the web worker."""
    (wheel,) = installed.parents[2].glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if "/worker/web/" in name}

    assert {f"onnxgate/runtimes/worker/web/{path.name}" for path in (WORKER_FOLDER / "web").iterdir()} == shipped
