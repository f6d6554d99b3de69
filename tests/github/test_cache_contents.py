"""Results and costs that the action restores and saves: which are kept and saved, and under which key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxgate.gate.sharding import plan
from onnxgate.github.cache import (
    FOLDER_VARIABLE,
    KEY_VARIABLE,
    clean_restored_cache,
    copy_costs,
    make_results_key,
    use_restored_cache,
)
from onnxgate.github.step import ResultFiles, read_inputs
from tests.github.test_cache import environment, workspace
from tests.harness.github.workflow_commands import commands
from tests.harness.locks import with_digests

__all__ = ["workspace"]

MODEL = "d" * 64
LOCKED = f"""
[models."a.onnx"]
sha256 = "{MODEL}"
size-bytes = 9
ir-version = 8
opsets = {{ "ai.onnx" = 17 }}
"""


@pytest.fixture
def restored_environment(workspace: Path) -> dict[str, str]:
    """Return the gate's environment after a restore of two results and the costs of two models."""
    lock = workspace / "onnxgate.lock"
    lock.write_text(with_digests(lock.read_text(encoding="utf-8") + LOCKED), encoding="utf-8")
    kept = workspace / "temp" / "onnxgate-kept"
    for digit in "12":
        leave(kept, digit * 64)
    for content in (MODEL, "e" * 64):
        plan.save_costs(kept / "costs", content, {"onnxruntime 1.18.1": 2.0})
    return {**environment(workspace), FOLDER_VARIABLE: str(kept), KEY_VARIABLE: "start-"}


def leave(kept: Path, name: str) -> Path:
    """Write a result as `store` does."""
    entry = kept / "results" / name
    (entry / "0").mkdir(parents=True)
    (entry / "entry.json").write_text("{}", encoding="utf-8")
    (entry / "0" / "0.npy").write_bytes(b"numbers")
    return entry


def list_prefixes(restored_environment: dict[str, str], name: str = "results") -> list[str]:
    """Return the first three characters of each name in the folder."""
    folder = Path(restored_environment[FOLDER_VARIABLE]) / name
    return sorted(path.name[:3] for path in folder.iterdir())


def test_only_used_results_are_saved(restored_environment: dict[str, str]) -> None:
    """Only results that were used in this run are saved; the key depends on the set of results."""
    inputs, kept = read_inputs(restored_environment), Path(restored_environment[FOLDER_VARIABLE])
    use_restored_cache(inputs, restored_environment)
    os.utime(kept / "results" / ("1" * 64))
    first = make_results_key(inputs, restored_environment)
    again = make_results_key(inputs, restored_environment)
    leave(kept, "3" * 64)
    more = make_results_key(inputs, restored_environment)

    assert ["111", "333"] == list_prefixes(restored_environment)
    assert first.startswith("start-")
    assert first == again != more
    assert (MODEL[:3], 1) == (
        list_prefixes(restored_environment, "costs")[0],
        len(list_prefixes(restored_environment, "costs")),
    )


def test_nothing_is_saved_without_used_results(restored_environment: dict[str, str]) -> None:
    """Nothing is saved if no result was used, no cache is configured, or the command is `plan`."""
    inputs = read_inputs(restored_environment)
    use_restored_cache(inputs, restored_environment)

    assert "" == make_results_key(inputs, restored_environment)
    assert "" == make_results_key(inputs, {**restored_environment, KEY_VARIABLE: ""})
    assert "" == make_results_key(
        read_inputs({**restored_environment, "ONNXGATE_INPUT_COMMAND": "plan"}), restored_environment
    )


def test_a_merge_saves_costs_by_run_and_attempt(restored_environment: dict[str, str]) -> None:
    """Only the digits of the runner's variables are used in the key."""
    inputs = read_inputs({**restored_environment, "ONNXGATE_INPUT_COMMAND": "merge", "ONNXGATE_INPUT_PATHS": "x.json"})
    run = {"GITHUB_RUN_ID": "12,3", "GITHUB_RUN_ATTEMPT": "2"}
    use_restored_cache(inputs, restored_environment)
    key = make_results_key(inputs, {**restored_environment, **run})
    for file in (Path(restored_environment[FOLDER_VARIABLE]) / "costs").iterdir():
        file.unlink()

    assert "start-123-2" == key
    assert "" == make_results_key(inputs, {**restored_environment, **run})


def _link(entry: Path) -> None:
    (entry / "0" / "0.npy").unlink()
    (entry / "0" / "0.npy").symlink_to("/etc/hostname")


def _all_link(entry: Path) -> None:
    entry.rename(entry.with_name("moved"))
    entry.symlink_to(entry.with_name("moved"))


def _folder(entry: Path) -> None:
    (entry / "0" / "1").mkdir()


def _other(entry: Path) -> None:
    (entry / "sitecustomize.py").write_text("", encoding="utf-8")


def _pipe(entry: Path) -> None:
    (entry / "entry.json").unlink()
    os.mkfifo(entry / "entry.json")


def _large_array(entry: Path) -> None:
    with (entry / "0" / "1.npy").open("wb") as file:
        file.truncate(65 * 2**20)


def _large_record(entry: Path) -> None:
    with (entry / "entry.json").open("wb") as file:
        file.truncate(5 * 2**20)


@pytest.mark.parametrize("spoil", [_link, _all_link, _folder, _other, _pipe, _large_array, _large_record])
def test_invalid_result_is_reported_and_deleted(
    restored_environment: dict[str, str], capfd: pytest.CaptureFixture[str], spoil: object
) -> None:
    """An invalid result is reported and deleted; the other one is kept."""
    assert callable(spoil)
    spoil(Path(restored_environment[FOLDER_VARIABLE]) / "results" / ("1" * 64))
    use_restored_cache(read_inputs(restored_environment), restored_environment)

    [warning] = commands(capfd.readouterr().out)
    assert "warning" == warning.name
    assert (
        f"results in the cache were invalid; they were removed and will be computed again: `{'1' * 64}`" in warning.data
    )
    assert ["222"] == list_prefixes(restored_environment)


def test_strangers_are_removed(restored_environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """Unexpected files and folders, invalid costs, and costs of models that are not in the lock are deleted."""
    kept = Path(restored_environment[FOLDER_VARIABLE])
    (kept / "results" / "x.part").mkdir()
    (kept / "costs" / "more").mkdir()
    (kept / "costs" / MODEL).unlink()
    (kept / "costs" / MODEL).symlink_to("/etc/hostname")
    assert clean_restored_cache(read_inputs(restored_environment), str(kept))

    assert "" == capfd.readouterr().out
    assert (["111", "222"], []) == (list_prefixes(restored_environment), list_prefixes(restored_environment, "costs"))


def test_results_are_bounded(restored_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the results exceed the size limit, the smallest ones are kept."""
    kept = Path(restored_environment[FOLDER_VARIABLE])
    monkeypatch.setattr("onnxgate.github.cache.MAX_CARRIED_BYTES", 20)
    (leave(kept, "0" * 64) / "0" / "1.npy").write_bytes(b"many numbers")
    make_results_key(read_inputs(restored_environment), restored_environment)

    assert ["111", "222"] == list_prefixes(restored_environment)


def test_shard_passes_on_its_own_costs(restored_environment: dict[str, str], tmp_path: Path) -> None:
    """A shard passes on only the costs that it measured itself; an unsharded check passes on none."""
    kept = Path(restored_environment[FOLDER_VARIABLE])
    results = ResultFiles(tmp_path / "out", shard="1/2")
    use_restored_cache(read_inputs(restored_environment), restored_environment)
    nothing = copy_costs(results, restored_environment)
    plan.save_costs(kept / "costs", MODEL, {"onnxruntime 1.18.1": 3.0})
    (kept / "costs" / "notes.json").write_text("{}", encoding="utf-8")
    whole = copy_costs(ResultFiles(tmp_path / "out"), restored_environment)

    assert ("", "") == (nothing, whole)
    assert str(tmp_path / "out" / "costs") == copy_costs(results, restored_environment)
    assert [MODEL] == [path.name for path in (tmp_path / "out" / "costs").iterdir()]
    assert {"onnxruntime 1.18.1": 3.0} == plan.load_costs(tmp_path / "out" / "costs", MODEL)
