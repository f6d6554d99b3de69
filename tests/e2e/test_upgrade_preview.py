"""`lock --upgrade --preview` predicts the result of the upgrade and writes nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from tests.e2e.conftest import Make
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

CONFIG = """
models = ["*.onnx"]

[targets.server]
runtime = "onnxruntime>=1.18,<1.24"
select = "newest"
"""
SOUND = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] y) { y = Softmax<axis = 1>(x) }'
PASSTHROUGH = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4] x) => (float[N, 4] x, float[N, 4] y) { y = Neg(x) }'
)
TOO_NEW = '<ir_version: 10, opset_import: ["" : 22]> g (float[N, 4] x) => (float[N, 4] y) { y = Abs(x) }'
NEVER = TOO_NEW.replace("22", "24")

CEIL_POOL = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 2, 6, 6] x) => (float[1, 2, 3, 3] y)'
    " { y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1,"
    " count_include_pad = 1>(x) }"
)
"""A pooling model; since onnxruntime 1.29, the sums of its last windows are divided by a different number."""


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return an empty folder with a `.git` folder."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    return command.at(folder)


@pytest.fixture
def upgradable(repository: Repository, create_once: Callable[[str, Make], Path]) -> Repository:
    """Return a project that is locked on onnxruntime 1.18.1 and supports up to 1.23."""

    def make(folder: Path) -> None:
        for name, text in (("sound", SOUND), ("passthrough", PASSTHROUGH), ("newer", TOO_NEW), ("never", NEVER)):
            (folder / f"{name}.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
        (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
        repository.at(folder).run("lock")
        repository.at(folder).run("lock", "--upgrade", "onnxruntime=1.18.1")

    for path in create_once("upgradable", make).glob("*.*"):
        shutil.copy(path, repository.folder)
    return repository


def checked(repository: Repository, status: int) -> tuple[dict[str, Any], str]:
    """Return the report of `check` and the last line of its output."""
    result = repository.run("check", "--output", "json=report.json", "--output", "text", status=status)
    return json.loads((repository.folder / "report.json").read_text(encoding="utf-8")), result.out.splitlines()[-1]


def rules(report: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the rule and model of each error."""
    return {(finding["rule"], finding["model"]) for finding in report["findings"] if finding["level"] == "error"}


def section(text: str, title: str) -> set[tuple[str, str]]:
    """Return the rule and model of each error below a heading."""
    lines = iter(text.splitlines())
    for line in lines:
        if line == title:
            break
    listed = set()
    for line in lines:
        if not line:
            break
        if line.startswith("  error"):
            listed.add(tuple(line.split()[1:3]))
    return listed  # type: ignore[return-value]


def test_preview_matches_later_reports(upgradable: Repository) -> None:
    """New, resolved and unchanged findings match the reports of `check` before and after the upgrade."""
    before, _ = checked(upgradable, status=1)
    lock = upgradable.folder / "onnxgate.lock"
    locked = lock.read_bytes()
    files = ("--output", "json=../preview.json", "--output", "markdown=../preview.md")
    output = upgradable.run("lock", "--upgrade", "--preview", *files, status=1).out
    proposal = json.loads((upgradable.folder / "../preview.json").read_text(encoding="utf-8"))
    page = (upgradable.folder / "../preview.md").read_text(encoding="utf-8")

    assert locked == lock.read_bytes()
    assert "| `passthrough.onnx` | **FAIL** |" in page
    assert {("input-passthrough", "passthrough.onnx")} == section(output, "new findings")
    assert {("opset-too-new", "newer.onnx")} == section(output, "resolved findings")
    assert {("opset-too-new", "never.onnx")} == section(output, "unchanged findings")

    upgradable.run("lock", "--upgrade")
    after, verdict = checked(upgradable, status=1)

    assert proposal["new_lock"] == lock.read_text(encoding="utf-8")
    assert (proposal["lock_path"], proposal["lock_sha256"]) == ("onnxgate.lock", hashlib.sha256(locked).hexdigest())
    assert rules(after) - rules(before) == section(output, "new findings")
    assert rules(before) - rules(after) == section(output, "resolved findings")
    without_time = re.sub(r" \([\d.]+ s\)$", "", verdict)
    assert f"after the upgrade: {without_time}" in output.splitlines()
    assert output.endswith("the lock was not changed; run `onnxgate lock --upgrade` to upgrade\n")
    assert "sound.onnx\n  onnxruntime 1.23.2: outputs are bit-identical to" in output


def test_newest_that_is_another(repository: Repository) -> None:
    """Locked and new releases are compared, so a mismatch is found even if `check` passes before the upgrade."""
    (repository.folder / "pool.onnx").write_bytes(onnx.parser.parse_model(CEIL_POOL).SerializeToString())
    repository.write("onnxgate.toml", CONFIG.replace(">=1.18,<1.24", ">=1.24.4,<1.25"))
    repository.run("lock")
    checked(repository, status=0)
    wider = CONFIG.replace(">=1.18,<1.24", ">=1.24.4,<1.32").replace("newest", "bounds")
    repository.write("onnxgate.toml", wider)
    output = repository.run("lock", "--upgrade", "--preview", status=1).out

    assert section(output, "new findings") == {("runtime-mismatch", "pool.onnx")}
    assert section(output, "unchanged findings") == set()

    repository.run("lock", "--upgrade")
    checked(repository, status=1)

    assert "preview: no changes" in repository.run("lock", "--upgrade", "--preview").out


def test_nothing_newer(upgradable: Repository) -> None:
    """If the lock already has the newest releases, no model is run."""
    upgradable.run("lock", "--upgrade")
    proposal = json.loads(upgradable.run("lock", "--upgrade", "--preview", "--output", "json").out)

    assert (proposal["new_lock"], proposal["preview"]) == ("", None)
    assert "preview: no changes" in upgradable.run("lock", "--upgrade", "--preview").out


@pytest.mark.parametrize(
    "arguments",
    [["--preview"], ["--preview", "--upgrade", "--measure"], ["--preview", "--check"], ["--output", "json"]],
)
def test_misuse(upgradable: Repository, arguments: list[str]) -> None:
    """`--preview` requires `--upgrade` and cannot be combined with other modes."""
    assert "error:" in upgradable.run("lock", *arguments, status=2).err


def test_no_lock(repository: Repository) -> None:
    """A preview requires a lock."""
    (repository.folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")

    assert "run `onnxgate lock`" in repository.run("lock", "--upgrade", "--preview", status=2).err


def test_unreachable_index(upgradable: Repository) -> None:
    """Without an index, the preview is not printed and the status is 3."""
    away = upgradable.with_environment(UV_DEFAULT_INDEX="http://127.0.0.1:9/simple", UV_HTTP_RETRIES="0")

    assert "preview:" not in away.run("lock", "--upgrade", "--preview", status=3).out


def test_temporary_folders_are_removed(upgradable: Repository, tmp_path: Path) -> None:
    """Temporary folders of the comparison are removed."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    upgradable.with_environment(TMPDIR=scratch).run("lock", "--upgrade", "--preview", status=1)

    assert [] == list(scratch.glob("onnxgate-*"))


def test_changed_model_is_not_proposed(upgradable: Repository) -> None:
    """A proposed lock changes pins only; it does not accept a model that changed since the lock was written."""
    locked = (upgradable.folder / "onnxgate.lock").read_text(encoding="utf-8")
    (upgradable.folder / "sound.onnx").write_bytes(
        onnx.parser.parse_model(SOUND.replace("axis = 1", "axis = 0")).SerializeToString()
    )
    proposal = json.loads(upgradable.run("lock", "--upgrade", "--preview", "--output", "json", status=1).out)

    assert re.findall("^sha256 = .*$", locked, re.MULTILINE) == re.findall(
        "^sha256 = .*$", proposal["new_lock"], re.MULTILINE
    )


def test_notes_are_not_mixed_with_json(upgradable: Repository) -> None:
    """Notes about the lock are printed with the text only."""
    config = f'{CONFIG}\n[toolchain]\npython = "missing"\nrequires = ["torch"]\n'
    upgradable.write("onnxgate.toml", config)
    upgrade = ("lock", "--upgrade", "--preview")

    assert "note: " in upgradable.run(*upgrade, status=1).out
    assert json.loads(upgradable.run(*upgrade, "--output", "json", status=1).out)["preview"]["arrivals"]
