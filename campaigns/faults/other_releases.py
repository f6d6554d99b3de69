"""Other versions of onnxgate that use the same cache: before, after and at the same time."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault


def doctored(ground: Ground, name: str, edits: dict[str, tuple[str, str]]) -> dict[str, Path]:
    """Return environment variables with which the installed command imports a modified onnxgate."""
    folder = ground.folder / name
    shutil.copytree(ground.package, folder / "onnxgate", ignore=shutil.ignore_patterns("__pycache__"))
    for edited, (old, new) in edits.items():
        file = folder / "onnxgate" / edited
        text = file.read_text(encoding="utf-8")
        assert re.search(old, text, re.MULTILINE), (edited, old)
        file.write_text(re.sub(old, new.replace("\\", r"\\"), text, count=1, flags=re.MULTILINE), encoding="utf-8")
    return {"PYTHONPATH": folder}


def other_layout(ground: Ground) -> dict[str, Path]:
    """Return environment variables for an onnxgate with a different environment layout."""
    return doctored(ground, "other layout", {"runtimes/store.py": (r"^LAYOUT = \d+", "LAYOUT = 99")})


@fault("two versions of onnxgate", "a version with a different cache layout runs before and after the current version")
def versions_in_turn(ground: Ground) -> Iterator[FaultOutcome]:
    """Each version creates its own environments and ignores those of the other."""
    ground.own_environments()
    other = other_layout(ground)
    yield ground.check(expected=(0,), variables=other, about="the other")
    yield ground.check(expected=(0,), about="ours")
    yield ground.check("--offline", expected=(0,), variables=other, about="the other again")


@fault("two versions of onnxgate", "state files from a newer version contain unknown fields")
def version_with_more_fields(ground: Ground) -> Iterator[FaultOutcome]:
    """Unknown fields are ignored, and the environments are kept."""
    folder = ground.own_environments(copied="onnxruntime-1.18")
    slot = next(folder.glob("onnxruntime-1.18*"))
    decoded = json.loads((slot / "ready.json").read_bytes())
    (slot / "ready.json").write_text(json.dumps({**decoded, "made-by": "onnxgate 9"}))
    yield ground.check(expected=(0,))


@fault(
    "two versions of onnxgate",
    "a version with a different cache layout and the current version run in parallel, with an empty cache",
)
def versions_at_once(ground: Ground) -> Iterator[FaultOutcome]:
    """The two versions do not interfere."""
    ground.truth()
    (ground.cache / "environments").unlink()
    other = other_layout(ground)
    seen: list[FaultOutcome] = []
    beside = replace(ground, folder=ground.folder / "beside").laid()
    variables = {**other, "ONNXGATE_CACHE_DIR": ground.cache}
    thread = threading.Thread(
        target=lambda: seen.append(beside.check(expected=(0,), variables=variables, about="the other"))
    )
    thread.start()
    yield ground.check(expected=(0,), about="ours")
    thread.join()
    yield from seen


@fault("two versions of onnxgate", "the cache contains other files from a newer version")
def version_with_more_files(ground: Ground) -> Iterator[FaultOutcome]:
    """Unknown files and folders in the cache are ignored."""
    ground.truth()
    for folder in ("costs", "inputs", "support", "results"):
        (ground.cache / folder).mkdir(exist_ok=True)
        for each in [*(ground.cache / folder).iterdir()]:
            if each.is_file():
                each.write_bytes(b'{"version": 9}')
        (ground.cache / folder / "unheard-of").mkdir(exist_ok=True)
        (ground.cache / folder / "v9.bin").write_bytes(b"\0" * 100)
    yield ground.check(expected=(0,))


@fault("two versions of onnxgate", "the lock was written by a newer version", quick=True, runs=False)
def lock_of_a_newer_version(ground: Ground) -> Iterator[FaultOutcome]:
    """A lock of a newer version is rejected and not overwritten."""
    text = re.sub(r"^version = \d+", "version = 99", ground.lock.read_text(), count=1, flags=re.MULTILINE)
    ground.lock.write_text(text)
    for arguments in (("check", "--static"), ("lock", "--offline")):
        seen = ground.run(*arguments, expected=(2,), about=" ".join(arguments))
        same = seen.lock[0] == seen.lock[1]
        yield replace(seen, lock=("", "") if same else seen.lock)
