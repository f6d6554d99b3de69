"""An input that is also an output: predicted from the file and confirmed by runs on the affected releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.models import write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

RELEASES = ("1.16.3", "1.19.2", "1.23.2", "1.31.1")
WRONG = ["onnxruntime 1.19.2", "onnxruntime 1.23.2"]
THROUGH = "g (float[N, 4] x, bool[N] mask) => (float[N, 4] y, bool[N] mask) { y = Relu(x) }"
IDENTITY = "g (float[N, 4] x, bool[N] mask) => (float[N, 4] y, bool[N] kept) { y = Relu(x) kept = Identity(mask) }"


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a repository with the model and its repaired version, for four releases."""
    made = command.at(tmp_path / "through")
    write(made.folder / "models" / "through.onnx", THROUGH)
    write(made.folder / "models" / "identity.onnx", IDENTITY)
    targets = [f'[targets.r{index}]\nruntime = "onnxruntime=={release}"\n' for index, release in enumerate(RELEASES)]
    made.write("onnxgate.toml", 'models = ["models/*.onnx"]\n\n' + "\n".join(targets))
    commit(made.folder)
    made.run("lock")
    return made


def test_pass_through(repository: Repository) -> None:
    """The one finding is confirmed on the two releases that return the caller's memory; everything else passes."""
    static = repository.report("--static", status=1)
    report = repository.report(status=1)
    (predicted,), (found,) = static["findings"], report["findings"]

    assert [(each["rule"], each["level"], each["runtimes"], each["confirmed"]) for each in (predicted, found)] == [
        ("input-passthrough", "error", WRONG, False),
        ("input-passthrough", "error", WRONG, True),
    ]
    assert (report["undecided"], report["skipped"]) == ([], [])
    assert {(cell["model"], cell["runtime"]): cell["state"] for cell in report["cells"]} == {
        (f"models/{name}.onnx", f"onnxruntime {release}"): "fail"
        if name == "through" and f"onnxruntime {release}" in WRONG
        else "pass"
        for name in ("through", "identity")
        for release in RELEASES
    }


def test_parity_stage_without_file_stage(repository: Repository) -> None:
    """Without the file stage, a finding of the parity stage names the same releases."""
    (found,) = repository.report("--stage", "runtime,parity", status=1)["findings"]

    assert (found["rule"], found["runtimes"]) == ("output-unstable", WRONG)
    assert found["message"] == (
        "output `mask` shares memory with an input and changes when the input is reused or freed "
        "(onnxruntime 1.19.2 and 1.23.2)"
    )
