"""Every case of `fixtures/` that a fix can repair, as a project with four real runtimes."""

from __future__ import annotations

import datetime
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from onnxgate import rules
from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.worker_pool import open_pool
from onnxgate.commands.fix.pipeline import fixable_rules
from onnxgate.core.findings import STATIC_STAGES, Stage
from onnxgate.gate.request import Baseline, Checkout, GateRequest, IgnorePolicy, Selection
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.git.baseline import choose_baseline
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock, LockedModel
from onnxgate.project.lock.update import UnlockableError, lock_models
from onnxgate.runtimes.pool import WorkerPool
from tests.conftest import ROOT
from tests.harness.repositories.checkout import commit
from tests.harness.rule_cases import CASES, every_case, unfold

BROKEN = ROOT / "fixtures" / "projects" / "broken"
TARGETS = """[targets.server]
runtime = "onnxruntime>=1.18,<1.20"

[targets.staging]
runtime = "onnxruntime>=1.24,<1.25"

[targets.newest]
runtime = "onnxruntime>=1.31,<1.32"
"""
OWN_TARGETS = re.compile(r'\[targets\.\w+\]\nruntime = "onnxruntime"\n')


def names() -> list[str]:
    """Return the cases with a finding that a fix can repair, for example "input-passthrough/input-is-output"."""
    actual = "|".join(map(re.escape, sorted(fixable_rules())))
    return [
        case.relative_to(CASES).as_posix()
        for case in every_case()
        if re.search(rf"^(error|warning) ({actual}) ", (case / "expected.txt").read_text(), re.MULTILINE)
        and not (case / "evidence.json").exists()
    ]


def make(name: str, folder: Path) -> GateRequest:
    """Create the case as a repository; if it has a `before.onnx`, the lock and the baseline are of that model."""
    unfold(CASES / name, folder)
    config = folder / "onnxgate.toml"
    output = (
        config.read_text() if config.exists() else 'models = ["**/*.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n'
    )
    config.write_text('exclude = ["before.onnx"]\n' + OWN_TARGETS.sub(TARGETS, output))
    (folder / "onnxgate.lock").unlink(missing_ok=True)
    if (folder / "before.onnx").exists():
        return _since(folder)
    (folder / ".git").mkdir(exist_ok=True)
    try:
        return request(folder, lock_models(_project(folder).models(), {}, {}))
    except UnlockableError:
        return request(folder, {})


def _since(folder: Path) -> GateRequest:
    """Commit `before.onnx` as the model, and restore the current model in the working tree."""
    model = folder / "model.onnx"
    after = model.read_bytes()
    shutil.copy(folder / "before.onnx", model)
    commit(folder)
    model.write_bytes(after)
    entries = lock_models(_project(folder).models(), {}, {})
    baseline = Baseline(choose_baseline(folder, "HEAD", {}).revision)
    return replace(request(folder, entries), baseline=baseline)


def broken(folder: Path) -> GateRequest:
    """Create the project that contains every kind of fault."""
    shutil.copytree(BROKEN, folder, symlinks=True, dirs_exist_ok=True)
    (folder / ".git").mkdir()
    return request(folder, load_lock(folder / "onnxgate.lock").models)


def request(folder: Path, entries: dict[str, LockedModel] | None) -> GateRequest:
    """Return the request of `onnxgate fix`; the lock's runtimes are those of the broken project."""
    project = _project(folder)
    lock: Lock = msgspec.structs.replace(load_lock(BROKEN / "onnxgate.lock"), models=entries or {})
    return GateRequest(
        checkout=Checkout(project=project, lock=lock, lock_text="", lock_name="onnxgate.lock", models=project.models()),
        selection=Selection(frozenset(STATIC_STAGES) - (frozenset() if entries is not None else {Stage.LOCK})),
        ignores=IgnorePolicy(datetime.date(2026, 11, 20)),
        open_host=lambda: hosting(project),
    )


def hosting(project: Project) -> AbstractContextManager[WorkerPool]:
    """Open a pool of two workers."""
    return open_pool(project, CommonOptions(jobs=2))


def _project(folder: Path) -> Project:
    return load_config(folder / "onnxgate.toml", rule_ids=frozenset(rules.by_id))


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return the paths and contents of all models in a folder."""
    yield from ((path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(folder.rglob("*.onnx")))
