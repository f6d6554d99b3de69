"""Without a package index and with cold caches, commands do not hang, and models that cannot be run are undecided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import SilentIndex, Variables, unanswered
from tests.harness.models import write
from tests.harness.repositories.user_repository import Repository, brief

PAGE = "<!DOCTYPE html><html><body>Sign in</body></html>\n"
PASSTHROUGH = "g (float[N, 4] x) => (float[N, 4] y, float[N, 4] x) { y = Relu (x) }"
REFUSED = "cannot be downloaded: the package index is unreachable"


@pytest.mark.torch
def test_quickstart_is_undecided(project: Callable[[str], Repository], cold: Variables, toolchain: Path) -> None:
    """A model is undecided on every release in the runtime stage only, because its source can be run."""
    quickstart = (
        project("quickstart")
        .with_environment(**cold)
        .with_environment(UV_HTTP_RETRIES=None, VIRTUAL_ENV=toolchain.parent.parent)
    )
    report = quickstart.report("models/classifier.onnx", status=3)
    cells = {(cell["model"], cell["runtime"]) for cell in report["cells"]}

    assert (report["verdict"], report["findings"], len(cells)) == ("undecided", [], 8)
    assert {(entry["model"], entry["runtime"]) for entry in report["undecided"]} == cells
    assert {entry["stage"] for entry in report["undecided"]} == {"runtime"}
    assert [entry for entry in report["undecided"] if REFUSED not in entry["reason"]] == []
    assert {cell["state"] for cell in report["cells"]} == {"undecided"}


def test_a_static_error_closes_the_gate(small: Repository, cold: Variables) -> None:
    """A static error fails the check even if other results are undecided."""
    write(small.folder / "models" / "through.onnx", PASSTHROUGH)
    small.run("lock", "--offline")
    report = small.with_environment(**cold).report(status=1)

    assert [brief(finding) for finding in report["findings"]] == [("error", "input-passthrough", "models/through.onnx")]
    assert {entry["model"] for entry in report["undecided"]} == {"models/small.onnx", "models/through.onnx"}


@pytest.mark.parametrize(
    "arguments", [("lock", "--check"), ("lock",), ("check", "--static"), ("check", "--static", "--offline")]
)
def test_commands_without_index(small: Repository, cold: Variables, arguments: tuple[str, ...]) -> None:
    """Commands that need no index pass and create no environment."""
    small.with_environment(**cold).run(*arguments, patience_s=60)

    assert [path.name for path in Path(str(cold["ONNXGATE_CACHE_DIR"])).glob("*") if path.name != "static"] == []
    assert not Path(str(cold["UV_CACHE_DIR"])).exists()


def test_offline(small: Repository, cold: Variables) -> None:
    """With `--offline` and a cold cache, nothing is downloaded, and the hint names the option."""
    report = small.with_environment(**cold).report("--offline", status=3)

    assert report["counts"]["undecided"] == 2
    assert {entry["hint"] for entry in report["undecided"]} == {
        "to download the packages, run the command once without `--offline`"
    }


def test_unwritable_cache_is_undecided(small: Repository, cold: Variables) -> None:
    """If environments cannot be stored, models are undecided, with a hint."""
    report = (
        small.with_environment(**cold)
        .with_environment(ONNXGATE_CACHE_DIR=small.folder / "onnxgate.toml")
        .report(status=3)
    )

    assert {entry["hint"] for entry in report["undecided"]} == {"set `ONNXGATE_CACHE_DIR` to another folder"}


def test_new_target_cannot_be_locked_offline(small: Repository, cold: Variables) -> None:
    """A new target cannot be locked without an index; the status is 3, and the lock is unchanged."""
    small.write("onnxgate.toml", small.read("onnxgate.toml") + '[targets.more]\nruntime = "onnxruntime>=1.24"\n')
    before = small.read("onnxgate.lock")
    result = small.with_environment(**cold).run("lock", status=3)

    assert "cannot query the package index" in result.err
    assert small.read("onnxgate.lock") == before


def test_an_index_that_never_answers(small: Repository, silent_index: SilentIndex, tmp_path: Path) -> None:
    """Downloads stop after uv's time limit, and each release is undecided."""
    patient = small.with_environment(**unanswered(silent_index.url, tmp_path)).with_environment(
        UV_HTTP_TIMEOUT="1", UV_HTTP_RETRIES="1"
    )
    report = patient.report(status=3)

    assert {entry["runtime"] for entry in report["undecided"]} == {"onnxruntime 1.18.1", "onnxruntime 1.19.2"}
    assert [entry for entry in report["undecided"] if REFUSED not in entry["reason"]] == []


def test_a_lock_at_an_index_that_never_answers(small: Repository, silent_index: SilentIndex, tmp_path: Path) -> None:
    """Resolving also stops after the time limit."""
    (small.folder / "onnxgate.lock").unlink()
    patient = small.with_environment(**unanswered(silent_index.url, tmp_path)).with_environment(UV_HTTP_TIMEOUT="1")
    result = patient.run("lock", status=3)

    assert "cannot query the package index" in result.err
