"""Folder of the result cache: private, limited in size, and safe for concurrent checks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from onnxgate.gate.result_cache import ResultCache, prune
from onnxgate.runtimes.environments.storage import create_private_folder
from tests.gate.test_run_keys import SEAT, Bench


def entry(folder: Path, name: str, size_bytes: int, used: int) -> Path:
    """Create a result with that size and time of last use."""
    made = folder / name
    made.mkdir(parents=True)
    (made / "entry.json").write_bytes(b"x" * size_bytes)
    os.utime(made, (used, used))
    return made


def test_least_recently_used_results_are_removed(tmp_path: Path) -> None:
    """If the cache is full, the least recently used results are removed first."""
    made = [entry(tmp_path, name, 400, used) for name, used in (("a", 30), ("b", 10), ("c", 20))]
    prune(tmp_path, 1000)

    assert [True, False, True] == [each.exists() for each in made]


def test_reuse_counts_as_use(tmp_path: Path) -> None:
    """A reused result counts as recently used and is not removed."""
    bench = Bench(tmp_path)
    job = bench.job()
    bench.store().keep(SEAT, job, bench.gave(job))
    (kept,) = (tmp_path / "kept").iterdir()
    os.utime(kept, (1, 1))
    other = entry(tmp_path / "kept", "b", 2000, 1000)
    bench.find_reused()
    prune(tmp_path / "kept", 2100)

    assert kept.exists()
    assert not other.exists()


def test_incomplete_entry_is_removed(tmp_path: Path) -> None:
    """An incomplete entry is removed after enough time that its writer must have ended."""
    old = entry(tmp_path, "1.part", 10, 1000)
    new = entry(tmp_path, "2.part", 10, 4_000_000_000)
    prune(tmp_path, 1000)

    assert [False, True] == [old.exists(), new.exists()]


@pytest.mark.skipif(os.name == "nt", reason="its folders have no such modes")
def test_folder_is_private(tmp_path: Path) -> None:
    """The folder is accessible only to the user; one that others may write to is not used."""
    folder = create_private_folder(tmp_path / "cache" / "results")
    assert folder is not None
    assert 0o700 == folder.stat().st_mode & 0o777

    folder.chmod(0o777)
    assert create_private_folder(folder) is None
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    assert create_private_folder(tmp_path / "link") is None
    (tmp_path / "file").touch()
    assert create_private_folder(tmp_path / "file" / "results") is None


def test_gates_keep_and_take_and_prune_at_once(tmp_path: Path) -> None:
    """Each concurrent check reads a complete result or none, and none of them fails."""
    bench, found, faults = Bench(tmp_path), list[float | None](), list[BaseException]()
    jobs = [[bench.job() for _ in range(30)] for _ in range(4)]

    def work(own: list[object]) -> None:
        try:
            for job in own:
                store: ResultCache = bench.store(fresh=len(found) % 3 == 0)
                store.keep(SEAT, job, bench.gave(job))  # type: ignore[arg-type]
                found.append(bench.find_reused())
                prune(tmp_path / "kept", 0 if len(found) % 5 == 0 else 10_000)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            faults.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []
    assert set(found) <= {1.0, None}
    assert 1.0 in found


def test_unwritable_cache_is_not_an_error(tmp_path: Path) -> None:
    """A cache on a full or read-only file system does not cause an error."""
    bench = Bench(tmp_path)
    (tmp_path / "kept").symlink_to("/proc/self/nothing")
    job = bench.job()
    bench.store().keep(SEAT, job, bench.gave(job))
    bench.store().tidy()

    assert bench.find_reused() is None
    assert np.load(job.output + "/0/0.npy").tolist() == [1.0] * 4
