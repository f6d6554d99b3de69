"""Caches that are read-only, are not folders, or are deleted during a run."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground, bound_by_permissions, need_bound_permissions
from campaigns.faults.registry import fault


@fault("cache", "the cache is read-only and contains prepared environments")
def cache_read_only_warm(ground: Ground) -> Iterator[FaultOutcome]:
    """Existing environments are used."""
    need_bound_permissions(ground.folder)
    ground.truth()
    ground.cache.chmod(0o500)
    yield ground.check(expected=(0,), setup=bound_by_permissions)
    ground.cache.chmod(0o700)


@fault("cache", "the cache is read-only and empty", quick=True)
def cache_read_only_cold(ground: Ground) -> Iterator[FaultOutcome]:
    """No runtime can be prepared; the hint names the environment variable that sets a different cache folder."""
    need_bound_permissions(ground.folder)
    ground.truth()
    (ground.cache / "environments").unlink()
    ground.cache.chmod(0o500)
    yield ground.check(expected=(3,), setup=bound_by_permissions)
    ground.cache.chmod(0o700)


@fault("cache", "the cache is not readable")
def cache_unreadable(ground: Ground) -> Iterator[FaultOutcome]:
    """An unreadable cache is treated as empty, and no environment can be created in it."""
    need_bound_permissions(ground.folder)
    ground.truth()
    ground.cache.chmod(0)
    yield ground.check(expected=(3,), setup=bound_by_permissions)
    yield ground.check("--static", expected=(0,), setup=bound_by_permissions, about="static")
    ground.cache.chmod(0o700)


@fault("cache", "the cache folder is a file")
def cache_a_file(ground: Ground) -> Iterator[FaultOutcome]:
    """No environment can be created in it."""
    file = ground.folder / "file"
    file.touch()
    yield ground.check(expected=(3,), variables={"ONNXGATE_CACHE_DIR": file})
    yield ground.check("--static", expected=(0,), variables={"ONNXGATE_CACHE_DIR": file}, about="static")


@fault("cache", "the subfolders of the cache are files or dangling links")
def cache_subfolders_are_files(ground: Ground) -> Iterator[FaultOutcome]:
    """Optional caches are skipped; an error is reported for a required cache."""
    ground.truth()
    for name in ("costs", "inputs", "support", "results", "bugs", "reading"):
        path = ground.cache / name
        shutil.rmtree(path, ignore_errors=True)
        path.touch()
    yield ground.check(expected=(0,), about="files")
    (ground.cache / "environments").unlink()
    (ground.cache / "environments").symlink_to(ground.folder / "nowhere" / "at" / "all")
    yield ground.check(expected=(0, 3), about="a link")


@fault("cache", "the path of the cache contains spaces, quotes and non-ASCII characters")
def cache_path_non_ascii(ground: Ground) -> Iterator[FaultOutcome]:
    """Environments are created and used there."""
    cache = ground.folder / "a cache, 'grüße' \"日本\" $HOME %s"
    yield ground.check(expected=(0,), variables={"ONNXGATE_CACHE_DIR": cache})


@fault("cache", "the cache is deleted during a run")
def cache_deleted(ground: Ground) -> Iterator[FaultOutcome]:
    """Checks that need the deleted files are undecided; there are no findings about the model."""
    for number, wait_s in enumerate((0.2, 0.4, 0.6, 0.8) if ground.thorough else (0.5,)):
        own = ground.elsewhere(f"deleted {number}") if number else ground
        own.own_environments(copied="onnxruntime-1.1")

        def delete(_: subprocess.Popen[bytes], own: Ground = own, wait_s: float = wait_s) -> None:
            time.sleep(wait_s)
            shutil.rmtree(own.cache, ignore_errors=True)

        yield own.check(expected=(0, 3), during=delete, about=f"after {wait_s:g} s")
        if ground.thorough:
            yield own.check(expected=(0,), about="afterwards")
