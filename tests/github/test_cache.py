"""The cache that the action restores and saves: its keys, its validation before use, and its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onnxgate.gate.result_cache import identify_machine
from onnxgate.github import cache
from onnxgate.github.cache import (
    FOLDER_VARIABLE,
    CacheOutputs,
    clean_restored_cache,
    has_wheels,
    select_cache,
    use_restored_cache,
)
from onnxgate.github.step import input_variable, read_inputs
from tests.harness.github.workflow_commands import commands
from tests.harness.locks import with_digests

SHA = hashlib.sha256(b"good").hexdigest()
PINS = '["numpy==1.26.4", "onnxruntime==1.18.1"]'
LOCK = f"""version = 1

[targets.server]
policy = "p"
runtimes = [
  {{ engine = "onnxruntime", release = "1.18.1", python = "3.11", packages = {PINS} }},
]

[[packages]]
name = "numpy"
version = "1.26.4"
python = "3.11"
wheels = [{{ file = "numpy-1.26.4-cp311-cp311-any.whl", sha256 = "{"1" * 64}" }}]

[[packages]]
name = "onnxruntime"
version = "1.18.1"
python = "3.11"
wheels = [{{ file = "onnxruntime-1.18.1-cp311-cp311-any.whl", sha256 = "{SHA}" }}]
"""
NAME = "onnxruntime-1.18.1-cp311-cp311-any.whl"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Create a checkout with config and lock."""
    (tmp_path / "onnxgate.toml").write_text('[targets.server]\nruntime = "onnxruntime==1.18.1"\n', encoding="utf-8")
    (tmp_path / "onnxgate.lock").write_text(with_digests(LOCK), encoding="utf-8")
    return tmp_path


def environment(workspace: Path, **inputs: str) -> dict[str, str]:
    """Return the environment variables of a step."""
    runner = {"RUNNER_OS": "Linux", "RUNNER_ARCH": "X64", "RUNNER_TEMP": str(workspace / "temp")}
    named = {input_variable(name.replace("_", "-")): value for name, value in inputs.items()}
    return {"GITHUB_WORKSPACE": str(workspace), **runner, **named}


def test_a_key_names_system_release_and_lock(workspace: Path) -> None:
    """The key contains the system, Python release and lock; an older cache of the same system is the fallback."""
    cache = select_cache(environment(workspace))
    system, _, rest = cache.key.partition("-py3.")

    assert "onnxgate-Linux-X64" == system
    assert rest
    assert [True, True] == [cache.key.startswith(start) for start in cache.restore_keys.splitlines()]
    assert str(workspace / "temp" / "onnxgate-kept") == cache.folder
    assert [f"{cache.folder}/wheels", f"{cache.folder}/npm"] == cache.path.splitlines()


def test_key_changes_with_pins_and_selection(workspace: Path) -> None:
    """The key changes with the pins and the selection, but not with the models, which need the same wheels."""
    asked = [environment(workspace), environment(workspace, shard="1/2"), environment(workspace, shard="2/2")]
    asked.append(environment(workspace, paths="models/a.onnx"))
    keys = [select_cache(each).key for each in asked]
    (workspace / "onnxgate.lock").write_text(with_digests(LOCK.replace(SHA, "0" * 64)), encoding="utf-8")
    keys.append(select_cache(asked[0]).key)

    assert 5 == len(set(keys))


@pytest.mark.parametrize("inputs", [{}, {"command": "plan"}])
def test_key_is_valid_for_github(workspace: Path, inputs: dict[str, str]) -> None:
    """The key is valid for GitHub whatever the runner's name is."""
    named = {"RUNNER_OS": "a,b\nkey=x", "RUNNER_ARCH": "é" * 600}
    actual = select_cache({**environment(workspace, **inputs), **named})

    for key in (actual.key, actual.results_key + "0" * 40):
        assert len(key) <= cache.MAX_KEY_LENGTH
        assert not set(key) & set(",\n= ")


def test_results_are_restored_by_selection_and_lock(workspace: Path) -> None:
    """Results are restored from the same selection first, then from the same lock, but never from another processor."""
    one, other = (select_cache(environment(workspace, shard=shard)) for shard in ("1/2", "2/2"))
    (workspace / "onnxgate.lock").write_text(f"{with_digests(LOCK)}\n# a model changed\n", encoding="utf-8")
    later = select_cache(environment(workspace, shard="1/2"))
    starts = one.results_restore_keys.splitlines()

    assert [f"{one.folder}/results", f"{one.folder}/costs"] == one.results_path.splitlines()
    assert one.results_key.startswith(f"onnxgate-results-Linux-X64-{identify_machine()[:8]}-py3.")
    assert starts == sorted(starts, key=len, reverse=True)
    assert [True, True, True] == [one.results_key.startswith(start) for start in starts]
    assert [False, True, True] == [other.results_key.startswith(start) for start in starts]
    assert [False, False, True] == [later.results_key.startswith(start) for start in starts]
    assert one.key == later.key


def test_plan_restores_costs_of_a_merge(workspace: Path) -> None:
    """The plan restores the costs that a merge saved, regardless of arguments; other projects have separate costs."""
    (workspace / "onnxgate.json").write_text("{}", encoding="utf-8")
    plan = select_cache(environment(workspace, command="plan", args="--shards 4"))
    merge = select_cache(environment(workspace, command="merge", paths="x.json", args="--key 0"))
    (workspace / "b").mkdir()
    for name in ("onnxgate.toml", "onnxgate.lock"):
        (workspace / "b" / name).write_bytes((workspace / name).read_bytes())
    other = select_cache(environment(workspace, command="plan", working_directory="b"))

    assert plan == merge
    assert ("", "") == (plan.path, plan.key)
    assert [True, True] == [plan.results_key.startswith(start) for start in plan.results_restore_keys.splitlines()]
    assert [False, False] == [other.results_key.startswith(start) for start in plan.results_restore_keys.splitlines()]


@pytest.mark.parametrize(
    "inputs",
    [
        {"cache": "false"},
        {"stages": "file,lock,support"},
        {"args": "--static"},
        {"command": "lock"},
        {"command": "plan", "cache": "false"},
        {"command": "merge", "paths": "x.json", "cache": "false"},
        {"config": "none.toml"},
        {"fail_on": "wrong"},
    ],
)
def test_no_cache_without_runs(workspace: Path, inputs: dict[str, str]) -> None:
    """No cache is selected if it is disabled, no models are run, or the inputs are invalid."""
    if "config" in inputs:
        (workspace / "onnxgate.lock").unlink()

    assert CacheOutputs() == select_cache(environment(workspace, **inputs))


def restored(workspace: Path, content: bytes) -> dict[str, str]:
    """Return the gate's environment after a restore."""
    place = workspace / "temp" / "onnxgate-kept" / "wheels" / SHA / NAME
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    return {**environment(workspace), FOLDER_VARIABLE: str(workspace / "temp" / "onnxgate-kept")}


def test_restored_cache_is_in_an_unpredictable_folder(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Environments are created in a new folder with an unpredictable name, unless the job sets one."""
    given = restored(workspace, b"good")
    inputs = read_inputs(given)
    found, again = use_restored_cache(inputs, given), use_restored_cache(inputs, given)
    own = use_restored_cache(inputs, {**given, "ONNXGATE_CACHE_DIR": "/mine"})

    assert found["ONNXGATE_KEPT_DIR"] == given[FOLDER_VARIABLE]
    assert found["ONNXGATE_CACHE_DIR"] != again["ONNXGATE_CACHE_DIR"]
    assert [] == list(Path(found["ONNXGATE_CACHE_DIR"]).iterdir())
    assert {"ONNXGATE_KEPT_DIR": given[FOLDER_VARIABLE]} == own
    assert "" == capfd.readouterr().out


def test_poisoned_wheel_is_reported_and_deleted(workspace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A wheel with the wrong hash is reported and deleted before it is used."""
    given = restored(workspace, b"evil")
    use_restored_cache(read_inputs(given), given)

    [warning] = commands(capfd.readouterr().out)
    assert "warning" == warning.name
    assert f"`{NAME}`" in warning.data
    assert [] == list((workspace / "temp").rglob("*.whl"))


def test_without_a_restore_nothing_changes(workspace: Path) -> None:
    """Without a restored cache, the default cache is used."""
    given = environment(workspace)

    assert {} == use_restored_cache(read_inputs(given), given)


@pytest.mark.parametrize(("content", "expected"), [(b"good", True), (b"evil", False)])
def test_only_locked_files_are_saved(workspace: Path, content: bytes, expected: bool) -> None:
    """Files that are not in the lock are not saved, because the repository's own code may have written them."""
    given = restored(workspace, content)

    assert clean_restored_cache(read_inputs(given), given[FOLDER_VARIABLE])
    assert expected == has_wheels(given[FOLDER_VARIABLE])


def test_internal_error_of_the_cache_step_is_a_warning(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An internal error in the cache step is a warning, and no cache is used."""

    def broken(_: object) -> CacheOutputs:
        raise RuntimeError("::error::owned")

    monkeypatch.setattr(cache, "select_cache", broken)
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    cache.main()

    assert ["warning"] == [said.name for said in commands(capfd.readouterr().out)]
    assert "onnxgate-" not in (tmp_path / "output").read_text(encoding="utf-8")
