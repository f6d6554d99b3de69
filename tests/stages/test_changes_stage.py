"""Changes of models since a revision: previous versions, renamed models and incomplete comparisons."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from onnxgate.core.report import Change
from onnxgate.evidence.lock import MinimumRelease, ModelChange
from onnxgate.gate.static import StaticAnalyzer
from onnxgate.model.diff.result import WeightChanges
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.git import repository as git_asked
from onnxgate.project.git.repository import find_git_root, run_git
from onnxgate.project.git.revisions import resolve_revision
from onnxgate.project.lock.lock_file import load_lock, render_lock
from onnxgate.project.lock.types import Lock
from onnxgate.project.lock.update import lock_models
from onnxgate.project.plan import plan_models
from onnxgate.stages import lock as lock_stage
from onnxgate.stages.changes.content_changes import GroupVerdicts, find_minimum_releases
from onnxgate.stages.changes.stage import (
    DetectedChanges,
    PresentModels,
    find_changes_since_lock,
    find_changes_since_revision,
)
from tests.harness.models import HEAD, inspect_files, make_external, parse, write
from tests.harness.repositories.checkout import commit, git

CONFIG = 'models = ["models/**/*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.17,<1.32"\n'
NET = "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"
OPSET_21 = '<ir_version: 8, opset_import: ["" : 21]>\n'
TWO = "g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"


class Repository:
    """A project at the root or in a folder of a git repository."""

    def __init__(self, root: Path, below: str = "") -> None:
        self.root = root
        self.folder = root / below
        self.config = CONFIG
        self.folder.mkdir(parents=True)

    def write(self, name: str, text: str = NET, head: str = HEAD) -> Path:
        """Write a model with this name."""
        return write(self.folder / "models" / name, parse(text, head))

    def write_external(self, name: str, text: str = NET, location: str = "w.bin") -> None:
        """Write a model with all its weights in an external file in the same folder."""
        model = parse(text)
        data = make_external(model, location)
        (write(self.folder / "models" / name, model).parent / location).write_bytes(data)

    def move(self, old: str, new: str) -> None:
        """Rename a model."""
        (self.folder / "models" / new).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / "models" / old).rename(self.folder / "models" / new)

    def project(self) -> Project:
        """Return the project in its current state."""
        (self.folder / "onnxgate.toml").write_text(self.config)
        return load_config(self.folder / "onnxgate.toml")

    def lock(self) -> Lock:
        """Lock the models in their current state, without runtimes."""
        project = self.project()
        lock = Lock(models=lock_models(project.models(), self.old_lock().models, {}))
        project.lock_path.write_text(render_lock(lock))
        return lock

    def commit(self, *, locked: bool = True) -> str:
        """Commit all files."""
        if locked:
            self.lock()
        else:
            self.project()
        return commit(self.root)

    def old_lock(self) -> Lock:
        """Return the last lock."""
        path = self.folder / "onnxgate.lock"
        return load_lock(path) if path.exists() else Lock()

    def since(
        self,
        name: str = "HEAD",
        *,
        paths: Sequence[str] = (),
        offline: bool = True,
        analyzer: StaticAnalyzer | None = None,
    ) -> DetectedChanges:
        """Return the changes since a revision; an analyzer may have a cache and child processes."""
        project, lock = self.project(), self.old_lock()
        models = project.models(paths, base=self.folder)
        files = inspect_files(models, lock)
        against, _ = lock_stage.collect_evidence(project, lock, render_lock(lock), files, [])
        present = PresentModels(
            project=project,
            planned=plan_models(project, lock, models),
            facts={each.facts.path: each.facts for each in against},
            places={each.facts.path: each.place for each in against},
            incomplete={file.path: ("its content is not here", "fetch it") for file in files if not file.is_complete},
        )
        root = find_git_root(self.folder)
        revision = resolve_revision(root, name, offline=offline)
        return find_changes_since_revision(present, revision, analyzer or StaticAnalyzer(0))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository whose root is the project, with two committed models."""
    made = Repository(tmp_path / "repository")
    made.write("a.onnx")
    made.write("b.onnx", NET.replace("Add", "Mul"))
    made.commit()
    return made


def summarize(actual: DetectedChanges) -> list[tuple[str, str, str]]:
    """Return the changes in short form."""
    return [(change.kind, change.model, change.before) for change in actual.changes]


def only_change(actual: DetectedChanges) -> ModelChange:
    """Return the only changed model, if there are no incomplete checks and no remarks."""
    assert (actual.undone, actual.remarks) == ([], [])
    (change,) = actual.subjects
    return change


def point(file: Path) -> bytes:
    """Replace a file with its Git LFS pointer, and return the file's content."""
    content = file.read_bytes()
    oid = hashlib.sha256(content).hexdigest()
    file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n")
    return content


def test_nothing_changed(repository: Repository) -> None:
    """Without changes, no old content is read; here it is even missing."""
    blob = git(repository.root, "rev-parse", "HEAD:models/a.onnx")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    assert repository.since() == DetectedChanges()


def test_change_has_facts_of_both_versions(repository: Repository) -> None:
    """The change has the facts of both versions, the weight changes, the minimum release and the lost releases."""
    repository.write("a.onnx", TWO.replace("4}", "5}"), OPSET_21)
    actual = repository.since()
    change = only_change(actual)

    assert (change.baseline, change.from_lock, change.before.path) == ("at `HEAD`", False, "models/a.onnx")
    assert ([value.name for value in change.before.inputs], [value.name for value in change.after.inputs]) == (
        ["x"],
        ["x", "z"],
    )
    assert change.weights == WeightChanges(changed=1, of=1, largest=1.0, name="w")
    assert change.minimums == (MinimumRelease(before="1.16.0", after="1.18.0", lost=("1.17.0", "1.17.1", "1.17.3")),)
    assert actual.changes == [
        Change(
            model="models/a.onnx",
            kind="changed",
            differences=(
                "now loads on onnxruntime 1.18.0 and newer (previously 1.16.0 and newer)",
                "no longer loads on onnxruntime 1.17.0–1.17.3, which a target requires",
                "input `z` is new",
                "imports opset 21 of `ai.onnx` instead of 18",
                "1 of 1 weights changed, largest change 1 (`w`)",
            ),
        )
    ]


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ('runtime = "onnxruntime>=1.18"', ()),
        ('runtime = "onnxruntime>=1.17.1,<1.18"', ("1.17.1", "1.17.3")),
        ('runtime = "onnxruntime-gpu>=1.17.3"\nproviders = ["CUDAExecutionProvider"]\npython = ".venv"', ()),
    ],
)
def test_supported_range_of_targets(repository: Repository, target: str, lost: tuple[str, ...]) -> None:
    """All releases in the supported range count, locked or not, except those of user-provided builds."""
    repository.config = f'models = ["models/*.onnx"]\n[targets.server]\n{target}\n'
    repository.write("a.onnx", NET, OPSET_21)

    assert only_change(repository.since()).minimums == (MinimumRelease(before="1.16.0", after="1.18.0", lost=lost),)


def test_targets_without_onnxruntime(repository: Repository) -> None:
    """Without a target that requires ONNX Runtime, its releases are not compared."""
    repository.config = 'models = ["models/*.onnx"]\n[targets.edge]\nruntime = "openvino>=2026"\n'
    repository.write("a.onnx", NET, OPSET_21)

    assert only_change(repository.since()).minimums == ()


def test_each_engine_with_support_data_has_a_minimum_release(repository: Repository) -> None:
    """An operator of a newer opset can need a newer release of an engine that does not limit opsets."""
    targets = (
        '[targets.edge]\nruntime = "openvino>=2024.5,<2026"\n[targets.other]\nruntime = "opencv-python-headless"\n'
    )
    repository.config = f"{CONFIG}{targets}"
    head = '<ir_version: 8, opset_import: ["" : 20]>\n'
    graph = "g (float[1, 2, 3] x, int64[4] s) => (float[A, B, C, D] y) {{ y = {} }}"
    repository.write("a.onnx", graph.format("ConstantOfShape (s)"))
    repository.commit()
    repository.write("a.onnx", graph.format("AffineGrid (x, s)"), head)
    server, edge = only_change(repository.since()).minimums

    assert ("onnxruntime", "openvino", "2024.5.0") == (server.engine, edge.engine, edge.before)
    assert edge.after > edge.before
    assert edge.lost[0] == "2024.5.0"
    assert "2026" not in edge.lost[-1]


def test_releases_without_prediction(repository: Repository) -> None:
    """Releases without a prediction, because of an extension, are named in a remark."""
    own = NET.replace("Add(x, w)", "my.domain.Op(x, w)")
    repository.config = CONFIG + 'extensions = ["onnxruntime-extensions"]\n'
    repository.write("a.onnx", own, '<ir_version: 8, opset_import: ["" : 18, "my.domain" : 1]>\n')
    repository.commit()
    repository.write("a.onnx", own, '<ir_version: 8, opset_import: ["" : 21, "my.domain" : 1]>\n')
    actual = repository.since()

    assert [change.minimums for change in actual.subjects] == [()]
    assert (actual.undone, actual.remarks) == (
        [],
        ["models/a.onnx: does not load on onnxruntime 1.17.0–1.17.3; there is no prediction for the version at `HEAD`"],
    )


INT8 = (
    "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> "
    "{ s = Add(x, w) c = Cast <to = 3> (s) d = Add(c, c) y = Cast <to = 1> (d) }"
)
"""ONNX Runtime adds int8 on CPU since 1.21."""
GPU_TOO = """
[targets.gpu]
runtime = "onnxruntime-gpu>=1.17"
python = ".venv"
providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
required = false
"""


def test_each_target_has_its_own_providers(repository: Repository) -> None:
    """A target with a GPU provider does not affect the predictions for a CPU target."""
    repository.config = CONFIG.replace("<1.32", "<1.19") + GPU_TOO
    repository.write("a.onnx", INT8)
    actual = repository.since()

    lost = ("1.17.0", "1.17.1", "1.17.3", "1.18.0", "1.18.1")
    assert only_change(actual).minimums == (MinimumRelease(before="1.16.0", after="1.21.0", lost=lost),)


def test_each_target_has_its_own_extensions(repository: Repository) -> None:
    """An extension affects only its own target, and only releases in a target's range can be lost."""
    repository.config = (
        CONFIG.replace("<1.32", "<1.17.3")
        + '[targets.more]\nruntime = "onnxruntime>=1.17.3"\nextensions = ["onnxruntime-extensions"]\n'
    )
    own = NET.replace("Add(x, w)", "my.domain.Op(x, w)")
    repository.write("a.onnx", own, '<ir_version: 8, opset_import: ["" : 18, "my.domain" : 1]>\n')
    actual = repository.since()
    (change,) = actual.subjects

    assert change.minimums == (MinimumRelease(before="1.16.0", after="", lost=("1.17.0", "1.17.1")),)
    (remark,) = actual.remarks
    assert remark.startswith("models/a.onnx: the version at `HEAD` loads on onnxruntime 1.17.3–1.")
    assert remark.endswith("; there is no prediction for the current version")


def test_dropped_release_next_to_unknown_ones(repository: Repository) -> None:
    """A release without a prediction does not prevent others from being lost."""
    then = {"1.17.0": "loads", "1.18.0": "loads", "1.19.0": "loads"}
    now = {"1.17.0": "refused", "1.18.0": "unknown", "1.19.0": "loads"}
    minimums = find_minimum_releases((GroupVerdicts((Target(runtime="onnxruntime>=1.17"),), then, now),))

    assert minimums == (MinimumRelease(before="", after="", lost=("1.17.0",)),)


@pytest.mark.parametrize("pointed", [False, True], ids=["in git", "in Git LFS"])
def test_git_calls_do_not_grow_with_models(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, pointed: bool
) -> None:
    """The number of git calls does not depend on the number of unchanged models."""
    asked: list[object] = []
    monkeypatch.setattr(git_asked, "run_git", lambda *each, **named: asked.append(each) or run_git(*each, **named))
    counts = []
    for number in range(2):
        for index in range(4):
            repository.write_external(f"m{number}{index}.onnx", location=f"w{number}{index}.bin")
        contents = {path: path.read_bytes() for path in repository.folder.glob("models/*")}
        if pointed:
            repository.lock()
            for each in contents:
                point(each)
        repository.commit(locked=False)
        for file, content in contents.items():
            file.write_bytes(content)
        asked.clear()
        assert repository.since() == DetectedChanges()
        counts.append(len(asked))

    assert counts[0] == counts[1]


def test_only_the_data_changed(repository: Repository) -> None:
    """A change of the external data is a change of the model, although the model file is the same."""
    repository.write_external("a.onnx")
    repository.commit()
    repository.write_external("a.onnx", NET.replace("4}", "6}"))
    change = only_change(repository.since())

    assert change.before.sha256 == change.after.sha256
    assert change.before.external != change.after.external
    assert change.weights == WeightChanges(changed=1, of=1, largest=2.0, name="w")


def test_added_and_removed_models(repository: Repository) -> None:
    """Added and removed models are listed; `policy-weakened` reports a model that is now excluded."""
    repository.write("c.onnx", TWO)
    (repository.folder / "models" / "b.onnx").unlink()
    repository.config = CONFIG.replace("[targets", 'exclude = ["models/a.onnx"]\n[targets', 1)
    actual = repository.since()

    assert summarize(actual) == [
        ("removed", "models/b.onnx", ""),
        ("added", "models/c.onnx", ""),
    ]
    assert (actual.subjects, actual.undone, actual.remarks) == ([], [], [])


def test_moved(repository: Repository) -> None:
    """A model with equal content under another name is renamed."""
    repository.move("a.onnx", "deep/er/name.onnx")
    actual = repository.since()

    assert summarize(actual) == [("renamed", "models/deep/er/name.onnx", "models/a.onnx")]
    assert actual.subjects == []


def test_behind_a_link_to_a_folder(repository: Repository) -> None:
    """The linked folder is now another one, so the model behind the link has changed."""
    for name, text in (("v1", NET), ("v2", TWO)):
        write(repository.root / "all" / name / "c.onnx", parse(text))
    link = repository.folder / "models" / "current"
    link.symlink_to("../all/v1")
    repository.config = CONFIG.replace('["models/**/*.onnx"]', '["models/*.onnx", "models/current/c.onnx"]')
    repository.commit(locked=False)
    link.unlink()
    link.symlink_to("../all/v2")
    actual = repository.since()

    assert summarize(actual) == [("changed", "models/current/c.onnx", "")]
    assert [value.name for value in only_change(actual).after.inputs] == ["x", "z"]


def test_copied(repository: Repository) -> None:
    """A copy of an existing model is a new model."""
    shutil.copy(repository.folder / "models" / "a.onnx", repository.folder / "models" / "copy.onnx")

    assert summarize(repository.since()) == [("added", "models/copy.onnx", "")]


def test_moved_and_changed(repository: Repository) -> None:
    """A changed model with the same file name and interface in another folder is renamed."""
    repository.move("a.onnx", "deep/a.onnx")
    repository.write("deep/a.onnx", NET.replace("4}", "5}"))
    actual = repository.since()

    assert summarize(actual) == [("renamed", "models/deep/a.onnx", "models/a.onnx")]
    assert only_change(actual).before.path == "models/a.onnx"


@pytest.mark.parametrize(
    "text",
    [TWO, NET.replace("float[N, 4] x", "float[N, 1, 4] x"), NET.replace("x)", "q)").replace("(x,", "(q,")],
    ids=["another input", "another rank", "another name"],
)
def test_namesake_of_another_kind(repository: Repository, text: str) -> None:
    """A model of the same file name with another interface is a new model, to avoid false alarms."""
    repository.move("a.onnx", "deep/a.onnx")
    repository.write("deep/a.onnx", text)

    actual = repository.since()

    assert summarize(actual) == [("removed", "models/a.onnx", ""), ("added", "models/deep/a.onnx", "")]
    assert actual.remarks == [
        "models/deep/a.onnx: not compared with `models/a.onnx` at `HEAD`, which may be its earlier version: their "
        "inputs or outputs differ too much"
    ]


def test_two_namesakes(repository: Repository) -> None:
    """With two candidates, neither is treated as the renamed model."""
    repository.move("a.onnx", "one/a.onnx")
    repository.write("one/a.onnx", NET.replace("4}", "5}"))
    repository.write("two/a.onnx", NET.replace("4}", "6}"))
    gone, one, two = (
        ("removed", "models/a.onnx", ""),
        ("added", "models/one/a.onnx", ""),
        ("added", "models/two/a.onnx", ""),
    )

    assert summarize(repository.since()) == [gone, one, two]
    assert summarize(repository.since(paths=["models/one"])) == [gone, one]


def _large(last: float) -> str:
    weights = ", ".join(str(index) for index in range(400))
    return f"g (float[N, 401] x) => (float[N, 401] y) <float[401] w = {{{weights}, {last}}}> {{ y = Add(x, w) }}"


def test_like_another(repository: Repository) -> None:
    """If git detects a rename by similarity, the interface may differ."""
    repository.write("large.onnx", _large(1))
    repository.commit()
    repository.move("large.onnx", "renamed.onnx")
    repository.write("renamed.onnx", _large(2).replace("x) =>", "x, float[N] more) =>"))
    git(repository.root, "add", "--all")
    actual = repository.since()

    assert summarize(actual) == [("renamed", "models/renamed.onnx", "models/large.onnx")]
    assert [value.name for value in only_change(actual).after.inputs] == ["x", "more"]


def test_all_pointers_are_alike(repository: Repository) -> None:
    """Similar Git LFS pointers are not a rename, because their contents are different models."""
    repository.write("large.onnx", _large(1))
    lock = repository.lock()
    point(repository.folder / "models" / "large.onnx")
    commit(repository.root)
    (repository.folder / "models" / "large.onnx").unlink()
    repository.write("renamed.onnx", NET.replace("Add", "Sub"))
    repository.lock()
    point(repository.folder / "models" / "renamed.onnx")
    git(repository.root, "add", "--all")
    actual = repository.since()

    assert "models/large.onnx" in lock.models
    assert summarize(actual) == [("removed", "models/large.onnx", ""), ("added", "models/renamed.onnx", "")]


def test_broken_then(repository: Repository) -> None:
    """An old version that was not a valid model results in a remark."""
    (repository.folder / "models" / "a.onnx").write_bytes(b"<html>not found</html>")
    repository.commit(locked=False)
    repository.write("a.onnx")
    actual = repository.since()

    assert (actual.subjects, actual.undone) == ([], [])
    assert actual.remarks == [
        "models/a.onnx: not compared with the baseline: the file at `HEAD` is not a readable model: an HTML page"
    ]
    assert summarize(actual) == [("changed", "models/a.onnx", "")]


def test_data_that_were_not_there(repository: Repository) -> None:
    """If the old external data is missing, facts are compared, and a remark reports that weights are not."""
    repository.write_external("a.onnx")
    (repository.folder / "models" / "w.bin").unlink()
    repository.commit(locked=False)
    repository.write_external("a.onnx", TWO)
    actual = repository.since()

    assert [[value.name for value in change.before.inputs] for change in actual.subjects] == [["x"]]
    assert [change.weights for change in actual.subjects] == [None]
    assert actual.remarks == [
        "models/a.onnx: weights and supported releases were not fully compared with the version at `HEAD`: "
        "`models/w.bin` does not exist at `HEAD`"
    ]


def test_pointer_described_by_the_lock(repository: Repository) -> None:
    """The old lock describes the content of a pointer that was not fetched."""
    repository.lock()
    point(repository.folder / "models" / "a.onnx")
    commit(repository.root)
    repository.write("a.onnx", TWO)
    actual = repository.since()

    assert [[value.name for value in change.before.inputs] for change in actual.subjects] == [["x"]]
    assert (actual.undone, len(actual.remarks)) == ([], 1)


def test_pointer_not_described_by_the_lock(repository: Repository) -> None:
    """If the lock does not describe the pointer's content, the comparison is incomplete."""
    repository.write("a.onnx", NET.replace("4}", "5}"))
    point(repository.folder / "models" / "a.onnx")
    commit(repository.root)
    repository.write("a.onnx", TWO)
    (undone,) = repository.since().undone

    assert (undone.stage.value, undone.model) == ("lock", "models/a.onnx")
    assert undone.reason == (
        "the model could not be compared with its version at `HEAD`: "
        "`models/a.onnx` at `HEAD` is a Git LFS pointer "
        "(content not fetched)"
    )
    assert (
        undone.hint
        == f'run `git lfs fetch origin {git(repository.root, "rev-parse", "HEAD")} --include "models/a.onnx"`'
    )


def test_lock_that_contradicts_the_content(repository: Repository) -> None:
    """Available content is read even if the old lock contradicts it."""
    lock = repository.lock()
    entry = msgspec.structs.replace(lock.models["models/a.onnx"], operators={"Lie": 1})
    lie = msgspec.structs.replace(lock, models={**lock.models, "models/a.onnx": entry})
    (repository.folder / "onnxgate.lock").write_text(render_lock(lie))
    commit(repository.root)
    repository.write("a.onnx", TWO)

    assert only_change(repository.since()).before.operators == {"Add": 1}


def test_lock_that_contradicts_a_pointer(repository: Repository) -> None:
    """Content in the local Git LFS storage is read even if the old lock contradicts it."""
    lock = repository.lock()
    entry = msgspec.structs.replace(lock.models["models/a.onnx"], operators={"Lie": 1})
    lie = msgspec.structs.replace(lock, models={**lock.models, "models/a.onnx": entry})
    (repository.folder / "onnxgate.lock").write_text(render_lock(lie))
    content = point(repository.folder / "models" / "a.onnx")
    commit(repository.root)
    oid = hashlib.sha256(content).hexdigest()
    stored = repository.root / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    repository.write("a.onnx", TWO)

    assert only_change(repository.since()).before.operators == {"Add": 1}


@pytest.mark.parametrize("text", ["version = 99\n", "<<<<<<< ours\n", "\udcff"], ids=["newer", "conflict", "bytes"])
def test_lock_that_cannot_be_read(repository: Repository, text: str) -> None:
    """An unreadable old lock is ignored."""
    (repository.folder / "onnxgate.lock").write_text(text, errors="surrogateescape")
    commit(repository.root)
    (repository.folder / "onnxgate.lock").unlink()
    repository.write("a.onnx", TWO)

    assert [value.name for value in only_change(repository.since()).before.inputs] == ["x"]


def test_pointers_to_the_same(repository: Repository) -> None:
    """Moving a model into or out of Git LFS is not a change."""
    repository.lock()
    content = point(repository.folder / "models" / "a.onnx")
    into = repository.since()
    commit(repository.root)
    (repository.folder / "models" / "a.onnx").write_bytes(content)

    assert into == DetectedChanges()
    assert repository.since() == DetectedChanges()


def test_config_in_a_folder(tmp_path: Path) -> None:
    """Paths of git and of the project differ if the config is in a subfolder."""
    repository = Repository(tmp_path / "repository", "ml/nets")
    repository.write_external("a.onnx")
    repository.commit()
    repository.write_external("a.onnx", TWO)
    actual = repository.since()

    assert summarize(actual) == [("changed", "models/a.onnx", "")]
    assert only_change(actual).before.path == "models/a.onnx"


def test_config_that_moved(tmp_path: Path) -> None:
    """An old lock in another folder still describes the models."""
    repository = Repository(tmp_path / "repository", "old")
    repository.write("a.onnx")
    repository.write("b.onnx", NET.replace("Add", "Mul"))
    repository.lock()
    point(repository.folder / "models" / "b.onnx")
    commit(repository.root)
    moved = Repository(tmp_path / "repository", "new/place")
    for each in ("models", "onnxgate.lock"):
        (repository.folder / each).rename(moved.folder / each)
    shutil.rmtree(repository.folder)
    moved.write("b.onnx", NET.replace("Add", "Div"))
    actual = moved.since()

    assert summarize(actual) == [
        ("renamed", "models/a.onnx", "../../old/models/a.onnx"),
        ("renamed", "models/b.onnx", "../../old/models/b.onnx"),
    ]
    assert [change.before.operators for change in actual.subjects] == [{"Mul": 1}]


def test_models_that_git_does_not_have(repository: Repository) -> None:
    """Models that git does not track are compared with their old lock entries."""
    (repository.root / ".gitignore").write_text("*.onnx\n")
    git(repository.root, "rm", "--quiet", "-r", "--cached", "models")
    repository.commit()
    repository.write("a.onnx", TWO)
    repository.write("c.onnx", TWO)
    actual = repository.since()

    assert summarize(actual) == [("changed", "models/a.onnx", ""), ("added", "models/c.onnx", "")]
    assert [[value.name for value in change.before.inputs] for change in actual.subjects] == [["x"]]
    assert actual.remarks == [
        "models/a.onnx: weights, inputs with a default value and supported releases were not fully compared with the "
        "version at `HEAD`: the file is not tracked by git; only its lock entry is available"
    ]


def test_entry_without_a_file(repository: Repository) -> None:
    """A stale lock entry is not a baseline for a new model."""
    (repository.folder / "models" / "a.onnx").unlink()
    repository.commit(locked=False)
    repository.write("a.onnx", TWO)
    git(repository.root, "add", "--all")
    actual = repository.since()

    assert (summarize(actual), actual.subjects) == ([("added", "models/a.onnx", "")], [])


def test_links(repository: Repository) -> None:
    """A link is compared with its old target; a link out of the repository cannot be compared."""
    (repository.folder / "models" / "link.onnx").symlink_to("a.onnx")
    (repository.folder / "models" / "out.onnx").symlink_to("/etc/hostname")
    repository.commit(locked=False)
    for name in ("link.onnx", "out.onnx"):
        (repository.folder / "models" / name).unlink()
        repository.write(name, TWO)
    actual = repository.since()

    assert [change.after.path for change in actual.subjects] == ["models/link.onnx"]
    assert [(entry.model, entry.reason) for entry in actual.undone] == [
        (
            "models/out.onnx",
            "the model could not be compared with its version at `HEAD`: `models/out.onnx` is a symbolic link to a "
            "file that git does not track",
        )
    ]


def test_submodule(repository: Repository, tmp_path: Path) -> None:
    """Models in a submodule are compared with those of its recorded commit."""
    inner = Repository(tmp_path / "inner")
    write(inner.root / "s.onnx", parse(NET))
    commit(inner.root)
    add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.root.as_uri(), "models/sub"]
    git(repository.root, *add)
    repository.commit()
    same = repository.since()
    write(repository.folder / "models" / "sub" / "s.onnx", parse(TWO))
    actual = repository.since()

    assert same == DetectedChanges()
    assert summarize(actual) == [("changed", "models/sub/s.onnx", "")]
    assert [value.name for value in only_change(actual).before.inputs] == ["x"]


def test_worktree(repository: Repository, tmp_path: Path) -> None:
    """In a worktree, `.git` is a file."""
    git(repository.root, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    other = Repository.__new__(Repository)
    other.root = other.folder = tmp_path / "other"
    other.config = CONFIG
    other.write("a.onnx", TWO)

    assert summarize(other.since("main")) == [("changed", "models/a.onnx", "")]
    assert only_change(other.since("main")).weights is None


def test_selected_models(repository: Repository) -> None:
    """Only the selected models are compared, but renames are found among all models."""
    repository.write("a.onnx", TWO)
    repository.move("b.onnx", "deep/b.onnx")

    assert summarize(repository.since(paths=["models/a.onnx"])) == [("changed", "models/a.onnx", "")]
    assert summarize(repository.since(paths=["models/deep"])) == [("renamed", "models/deep/b.onnx", "models/b.onnx")]


def test_new_model_that_cannot_be_read(repository: Repository) -> None:
    """A new model that cannot be read may be a renamed one, so no model is reported as removed."""
    repository.move("b.onnx", "c.onnx")
    (repository.folder / "models" / "c.onnx").write_bytes(b"broken")

    assert repository.since().changes == []


def test_revision_without_a_tree(repository: Repository) -> None:
    """If the files of a revision cannot be listed, the comparison is incomplete."""
    lost = git(repository.root, "rev-parse", "HEAD^{tree}")
    repository.write("a.onnx", TWO)
    (repository.root / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    (undone,) = repository.since().undone

    assert (undone.model, undone.stage.value) == ("", "lock")
    assert undone.reason.startswith("cannot list the files at `HEAD`: ")


def test_since_the_lock(repository: Repository) -> None:
    """Without a revision, models that differ from the lock are compared with it."""
    repository.write("a.onnx", TWO)
    project, lock = repository.project(), repository.old_lock()
    against, _ = lock_stage.collect_evidence(
        project, lock, render_lock(lock), inspect_files(project.models(), lock), []
    )
    (change,) = find_changes_since_lock(against)

    assert (change.from_lock, change.baseline, change.weights, change.minimums) == (True, "in the lock", None, ())
    assert ([value.name for value in change.before.inputs], change.after.path) == (["x"], "models/a.onnx")
