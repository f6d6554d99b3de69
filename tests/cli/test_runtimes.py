"""`onnxgate runtimes` lists, prepares and removes environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onnxgate.cli import main
from onnxgate.cli.runtimes import command, parse_age
from onnxgate.commands.cache_inventory import DiskUsage, environment_folders, remove_unused
from onnxgate.core.errors import UsageError
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.runtimes.environments import leases as environment_leases
from onnxgate.runtimes.environments.builder import Environments
from tests.harness.locks import with_digests

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "fixtures" / "projects" / "quickstart"
DAY_S = 86400
LONG_AGO = time.time() - 90 * DAY_S


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a lock."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(QUICKSTART / "onnxgate.lock", folder)
    config = (QUICKSTART / "onnxgate.toml").read_text()
    (folder / "onnxgate.toml").write_text(config.partition("# The packages for exporting")[0])
    return folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ONNXGATE_KEPT_DIR", raising=False)
    return tmp_path / "cache"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Return the exit status and the standard output."""
    with pytest.raises(SystemExit) as ended:
        main(["runtimes", *map(str, arguments)])
    return int(str(ended.value.code)), capsys.readouterr().out


def states(capsys: pytest.CaptureFixture[str], project: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON entry of each runtime."""
    status, said = run(capsys, "list", "--output", "json", "--directory", project)
    assert status == 0
    return {runtime["runtime"]: runtime for runtime in json.loads(said)["runtimes"]}


@pytest.mark.index
def test_prepared_environment_is_ready(
    capsys: pytest.CaptureFixture[str], project: Path, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prepared environment is listed as ready, with its folder and size."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(shared_folder / "a cache"))
    status, said = run(capsys, "prepare", "newest", "--directory", project)
    actual = states(capsys, project)["onnxruntime 1.31.1"]

    assert (status, said) == (0, "1 of 1 environment ready\n")
    assert (actual["state"], actual["targets"]) == ("ready", ["newest"])
    assert actual["size_bytes"] >= actual["freed_bytes"]
    assert actual["size_bytes"] > 2**20
    assert Path(actual["folder"]).is_dir()


def test_missing_environment_has_a_reason(capsys: pytest.CaptureFixture[str], project: Path, own_cache: Path) -> None:
    """An environment that is not ready has a reason or a hint."""
    (broken,) = (folder for folder in folders(project, own_cache) if "1.18.1" in folder.name)
    (broken / "attempts" / "x").mkdir(parents=True)
    lock = project / "onnxgate.lock"
    text = lock.read_text()
    other = text.replace("manylinux", "otherlinux").replace("macosx", "othersx").replace("win_", "other_")
    lock.write_text(with_digests(other))
    actual = states(capsys, project)

    assert {each["state"] for each in actual.values()} == {"unavailable"}
    assert "has no wheel for" in actual["onnxruntime 1.18.1"]["reason"]

    lock.write_text(text)
    actual = states(capsys, project)

    assert actual.pop("onnxruntime 1.18.1")["state"] == "broken"
    assert {(each["state"], each["hint"]) for each in actual.values()} == {
        ("not-prepared", "run `onnxgate runtimes prepare`")
    }


def test_a_list_is_read_in_three_ways(capsys: pytest.CaptureFixture[str], project: Path, own_cache: Path) -> None:
    """The list is available as text and Markdown, and listing creates nothing."""
    _, text = run(capsys, "list", "--directory", project)
    _, markdown = run(capsys, "list", "--output", "markdown", "--directory", project)

    assert f"0 of 8 environments ready in {own_cache}\n" in text
    assert "| onnxruntime 1.31.1 | 3.11 | not prepared |  | `newest` |" in markdown
    assert not own_cache.exists()


def test_failed_preparation_is_undecided(
    capsys: pytest.CaptureFixture[str],
    project: Path,
    own_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An environment that cannot be prepared is undecided with a hint, or skipped if no target requires it."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    asked = ("prepare", "newest", "--offline", "--directory", project)
    status, said = run(capsys, *asked)
    config = project / "onnxgate.toml"
    config.write_text(config.read_text().replace("[targets.newest]", "[targets.newest]\nrequired = false"))
    status_of_optional, skipped = run(capsys, *asked)

    assert status == 3
    assert said.startswith("undecided onnxruntime 1.31.1: ")
    assert "\n  hint: " in said
    assert said.endswith("\n0 of 1 environment ready\n")
    assert (status_of_optional, skipped.partition(" ")[0]) == (0, "skipped")
    assert own_cache.exists()


def test_names_that_the_lock_has_not(capsys: pytest.CaptureFixture[str], project: Path, own_cache: Path) -> None:
    """The error of a target that is not in the lock suggests a similar name, and lists those of the lock."""
    assert run(capsys, "prepare", "nowhere", "--directory", project)[0] == 2
    with pytest.raises(UsageError, match="has no runtime or target `newst`; did you mean `newest`") as caught:
        command(["prepare", "newst", "--directory", str(project)], standalone_mode=False)

    assert caught.value.hint is not None
    assert caught.value.hint.startswith("available: `newest`, `")


def folders(project: Path, cache: Path) -> list[Path]:
    """Return the folders of the lock's environments."""
    return sorted(environment_folders([load_lock(project / "onnxgate.lock")], Environments(cache, offline=True)))


def environment(folder: Path, used: float = LONG_AGO) -> Path:
    """Create an environment with the given time of last use."""
    (folder / "attempts" / "a").mkdir(parents=True)
    (folder / "attempts" / "a" / "file").write_bytes(b"x" * 10_000)
    (folder / "ready.json").write_text("{}")
    for path in (folder / "ready.json", folder):
        os.utime(path, (used, used))
    return folder


def entry(path: Path, used: float = LONG_AGO) -> Path:
    """Create a cache file with the given time of last use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (used, used))
    return path


def test_only_unused_environments_are_removed(
    capsys: pytest.CaptureFixture[str], project: Path, own_cache: Path
) -> None:
    """Locked, recently used and active environments are kept, and so are backups, which cannot be recreated."""
    named = environment(folders(project, own_cache)[0])
    old, late, used = (environment(own_cache / "environments" / name) for name in ("old-1", "late-1", "used-1"))
    os.utime(late / "ready.json")
    backup, result, fresh = (entry(own_cache / name) for name in ("backups/a.onnx", "results/1/e", "results/2"))
    os.utime(result.parent, (LONG_AGO, LONG_AGO))
    os.utime(fresh)
    leases = environment_leases.EnvironmentLeases()
    with leases.acquire(used):
        pass
    os.utime(environment_leases.lease_folder(used), (LONG_AGO, LONG_AGO))
    before = sorted(own_cache.rglob("*"))
    completed = run(capsys, "prune", "--dry-run", "--directory", project)

    assert completed[0] == 0
    assert completed[1].splitlines()[:3] == [
        "would remove old-1",
        "would remove 1 file in results/",
        "kept used-1 (in use)",
    ]
    assert [path for path in before if not path.exists()] == []

    status, text = run(capsys, "prune", "--directory", project)
    leases.close()

    assert (status, text.splitlines()[-1].endswith("; 2 environments kept, 1 in use")) == (0, True)
    assert [path.exists() for path in (named, late, used, backup, fresh)] == [True] * 5
    assert [path.exists() for path in (old, result)] == [False] * 2

    run(capsys, "prune", "--all", "--directory", project.parent)

    assert [path.exists() for path in (named, late, used, fresh)] == [False] * 4
    assert backup.exists()


def test_environment_is_in_use_until_the_check_ends(project: Path, own_cache: Path) -> None:
    """An environment is in use until its check has ended, even if the check is killed."""
    script = f"""if True:
        import sys, time
        from pathlib import Path
        from onnxgate.project.lock.lock_file import load_lock
        from onnxgate.runtimes.environments.builder import Environments
        from onnxgate.runtimes.environments.storage import EnvironmentSlot
        lock = load_lock(Path({str(project / "onnxgate.lock")!r}))
        environments = Environments(Path({str(own_cache)!r}), offline=True)
        runtime = lock.targets["newest"].runtimes[0]
        EnvironmentSlot.ready = lambda slot: slot.folder
        print(environments.prepare(runtime, lock.pinned), flush=True)
        time.sleep(60)
    """
    gate = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert gate.stdout is not None
    try:
        folder = environment(Path(gate.stdout.readline().strip()))
        meanwhile = remove_unused(own_cache, named=(), before=float("inf"), really=True)
    finally:
        gate.kill()
        gate.wait()
        gate.stdout.close()

    assert meanwhile.in_use == (folder.name,)
    assert (folder / "ready.json").exists()

    afterwards = remove_unused(own_cache, named=(), before=float("inf"), really=True)

    assert list(afterwards.removed) == [folder.name]
    assert not folder.exists()


def test_removal_is_undone_if_a_check_starts(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a check starts to use an environment during its removal, the removal is undone."""
    folder = environment(own_cache / "environments" / "x-1")
    answers = iter((False, True))
    monkeypatch.setattr(environment_leases, "is_in_use", lambda _: next(answers))
    pruned = remove_unused(own_cache, named=(), before=float("inf"), really=True)

    assert pruned.in_use == ("x-1",)
    assert (folder / "ready.json").read_text() == "{}"


def test_hard_links_count_once(tmp_path: Path) -> None:
    """Hard links count once, and files that another cache shares do not count as freed."""
    (tmp_path / "one").mkdir()
    for name, size in (("alone", 100_000), ("twice", 200_000), ("elsewhere", 300_000)):
        (tmp_path / "one" / name).write_bytes(os.urandom(size))
    (tmp_path / "one" / "again").hardlink_to(tmp_path / "one" / "twice")
    (tmp_path / "other").hardlink_to(tmp_path / "one" / "elsewhere")
    sizes = DiskUsage()
    sizes.add(tmp_path / "one")

    assert sizes.size_bytes == pytest.approx(600_000, abs=3 * 4096)
    assert sizes.freed_bytes == pytest.approx(300_000, abs=2 * 4096)


@pytest.mark.parametrize(("age", "expected"), [("12h", 43200), ("30d", 30 * DAY_S), ("2w", 14 * DAY_S), ("0d", 0)])
def test_ages(age: str, expected: float) -> None:
    """Ages are given in hours, days or weeks."""
    assert parse_age(age) == expected


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1m", "٣d", "99999999d"])
def test_invalid_age(age: str) -> None:
    """Invalid ages are rejected before anything is removed."""
    with pytest.raises(UsageError, match="invalid `--older-than`"):
        parse_age(age)
