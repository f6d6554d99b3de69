"""Changes that an exporter makes silently are findings; unchanged exports have no findings."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Make
from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import Repository, usual_environment

pytestmark = pytest.mark.torch

Finding = tuple[str, str, str]
"""Level, rule and source line of a finding."""

EXPORTED: dict[str, set[Finding]] = {
    "branch": {("error", "source-not-exportable", "if x.sum() > 0:")},
    "branch_traced": {("error", "source-not-exportable", "if x.sum() > 0:")},
    "size_branch": {("warning", "dynamic-axis-lost", "def size_branch():")},
    "size_branch_traced": {("warning", "source-not-exportable", "if x.shape[0] > 2:")},
    "fixed_size": {("error", "dynamic-axis-lost", "def fixed_size():")},
    "fixed_size_auto": {("error", "dynamic-axis-lost", "def fixed_size_auto():")},
    "fixed_size_traced": {
        ("error", "dynamic-axis-lost", "def fixed_size_traced():"),
        ("warning", "source-not-exportable", "rows = int(x.shape[0])"),
    },
    "wrong_axis_name": {("error", "dynamic-axis-lost", "def wrong_axis_name():")},
    "constrained": {("error", "source-not-exportable", "def constrained():")},
    "item_traced": {("warning", "source-not-exportable", "taken = count.item()")},
    "dropped": {("error", "training-mode-left", "return functional.dropout(x, 0.5, training=True) * 2")},
    "dropped_traced": {("error", "training-mode-left", "def dropped_traced():")},
    "batch_statistics_traced": {("error", "training-mode-left", "def batch_statistics_traced():")},
    "in_training": {("note", "training-mode-left", "def in_training():")},
    "counter": {("error", "export-drops-mutation", "def counter():")},
    "counter_traced": {("error", "export-drops-mutation", "def counter_traced():")},
    "quiet": {("warning", "export-drops-mutation", "def quiet():")},
    "keys": {("warning", "output-dropped", "def keys():")},
    "nothing": {("warning", "output-dropped", "def nothing():")},
    "nothing_named": {("error", "output-dropped", "def nothing_named():")},
    "nothing_last": {("note", "output-dropped", "def nothing_last():")},
    "alias": {("warning", "source-not-exportable", "def alias():")},
    "number": {("note", "source-not-exportable", "def number():")},
    "number_named": {
        ("error", "source-not-exportable", "def number_named():"),
        ("note", "source-not-exportable", "def number_named():"),
    },
    "unused_traced": {("error", "source-not-exportable", "def unused_traced():")},
    "drawn": {("error", "export-unstable", "def drawn():")},
    "unsorted": {("error", "export-unstable", "def unsorted():")},
    "decomposed": {("error", "source-not-exportable", "return torch.linalg.svd(x)[1]")},
    "decomposed_traced": {("error", "source-not-exportable", "def decomposed_traced():")},
    "noise": set(),  # the export is correct: random outputs differ between runs
    "one_tensor_twice": set(),  # only a run shows that the exporter confused the two inputs
}
RUN = {
    "one_tensor_twice": {"source-mismatch"},
    "size_branch": {"source-mismatch"},
    "size_branch_traced": {"source-mismatch"},
    "batch_statistics_traced": {"source-mismatch", "output-unstable"},
    "counter_traced": {"source-mismatch"},
    "noise": set(),
    "fine_unused": set(),
    "fine_where": set(),
    "fine_size_traced": set(),
}
OPSETS: dict[int, dict[str, set[Finding]]] = {
    13: {
        "fine_opset": {("error", "export-opset-ignored", "def fine_opset():")},
        "fine_where_traced": set(),
    },
    17: {"halves": {("error", "export-failed", "def halves():")}, "fine_opset": set()},
    26: {
        "attending": {
            ("error", "export-failed", "def attending():"),
            ("error", "export-opset-ignored", "def attending():"),
        },
        "fine_where_traced": {("error", "export-failed", "def fine_where_traced():")},
    },
}
NEAREST = {13: "pin opset 18", 17: "pin opset 18", 26: "pin opset 25"}


def test_exports(by_hand: Repository) -> None:
    """Each silent change is a finding with its level and source line; correct exports have no findings."""
    report = by_hand.report("--stage", "file,export", status=1)
    expected = {f"models/{name}.onnx": EXPORTED.get(name, set()) for name in _names(by_hand)}

    assert findings_by_model(by_hand, report) == expected
    assert (report["undecided"], report["skipped"]) == ([], [])
    assert [name for name in _names(by_hand) if name not in EXPORTED and not name.startswith("fine_")] == []


@pytest.mark.index
def test_runs(by_hand: Repository) -> None:
    """Wrong outputs that the export does not show are found by running the model."""
    by_hand.run("lock")
    paths = [f"models/{name}.onnx" for name in RUN]
    report = by_hand.report("--stage", "runtime,parity", *paths, status=1)
    findings = {path: {finding["rule"] for finding in report["findings"] if finding["model"] == path} for path in paths}

    assert findings == {f"models/{name}.onnx": rules for name, rules in RUN.items()}
    assert "depend on random operators (`RandomNormalLike`)" in str(report["skipped"])


def test_opsets(command: Repository, toolchain: Path, tmp_path: Path) -> None:
    """For an opset that the exporter does not support, the fix names the nearest one that all targets support."""
    repository = _with_toolchain(command, toolchain).at(copy_tree(ROOT / PROJECTS / "exporters", tmp_path / "project"))
    models = {(name, opset): f"models/{name}-{opset}.onnx" for opset, names in OPSETS.items() for name in names}
    config = 'opset = { "ai.onnx" = 17 }\n[targets.server]\nruntime = "onnxruntime==1.31.1"\n'
    for (name, opset), path in models.items():
        own = f"opset = {opset}\n" if opset != 17 else ""
        config += f'[[model]]\npath = "{path}"\nsource = "export/sources.py:{name}"\n{own}'
    repository.write("onnxgate.toml", config)
    names = sorted({name for name, _ in models})
    _export(repository.folder, toolchain, names)
    for (name, _), path in models.items():
        shutil.copy(repository.folder / f"models/{name}.onnx", repository.folder / path)
    for name in names:
        (repository.folder / f"models/{name}.onnx").unlink()
    commit(repository.folder)
    _lock(repository)
    report = repository.report("--stage", "file,export", status=1)
    fixes = {
        opset: [
            finding["fix"]
            for finding in report["findings"]
            if finding["model"].endswith(f"-{opset}.onnx")
            and (finding["rule"] == "export-opset-ignored" or opset == 17)
        ]
        for opset in OPSETS
    }

    assert findings_by_model(repository, report, without="export-stale") == {
        path: OPSETS[opset][name] for (name, opset), path in models.items()
    }
    assert [opset for opset in OPSETS if not any(fix.startswith(NEAREST[opset]) for fix in fixes[opset])] == []


def findings_by_model(repository: Repository, report: Mapping[str, Any], without: str = "") -> dict[str, set[Finding]]:
    """Return the findings of each model."""
    actual: dict[str, set[Finding]] = {model["path"]: set() for model in report["models"]}
    for finding in report["findings"]:
        if finding["rule"] != without:
            lines = repository.read(finding["place"]["path"]).splitlines()
            line = lines[finding["place"]["line"] - 1].strip()
            actual[finding["model"]].add((finding["level"], finding["rule"], line))
    return actual


def _names(repository: Repository) -> list[str]:
    lines = repository.read("export/sources.py").splitlines()
    names = [line[4:-3] for line in lines if line.startswith("def ") and line.endswith("():")]
    return [name for name in names if f"models/{name}.onnx" in repository.read("onnxgate.toml")]


@pytest.fixture(scope="session")
def by_hand(command: Repository, toolchain: Path, create_once: Callable[[str, Make], Path]) -> Repository:
    """Return the project with models exported without onnxgate, locked without an index."""
    exporting = _with_toolchain(command, toolchain)

    def make(folder: Path) -> None:
        project = copy_tree(ROOT / PROJECTS / "exporters", folder / "project")
        _export(project, toolchain, _names(exporting.at(project)))
        commit(project)
        _lock(exporting.at(project))

    return exporting.at(create_once("exporters", make) / "project")


def _with_toolchain(command: Repository, toolchain: Path) -> Repository:
    return command.with_environment(VIRTUAL_ENV=toolchain.parent.parent)


def _export(folder: Path, toolchain: Path, names: Sequence[str]) -> None:
    environment = {**usual_environment(), "PYTHONHASHSEED": "0"}
    command = [toolchain, "by_hand.py", *names]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def _lock(repository: Repository) -> None:
    repository.write("onnxgate.lock", (ROOT / PROJECTS / "exporters" / "onnxgate.lock").read_text(encoding="utf-8"))
    repository.run("lock", "--offline")
