"""The baseline of the action in each kind of run, in clones as `actions/checkout` leaves them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.conftest import need
from tests.harness.github.action_consumer import Consumer, consumer
from tests.harness.github.actions_engine import ActionRun, Engine
from tests.harness.repositories.checkout import git

pytestmark = [pytest.mark.index]

QUEUE = "refs/heads/gh-readonly-queue/main/pr-7"
BROKEN = ["input-renamed models/a.onnx"]
MERGE = "refs/pull/7/merge"


@dataclass(frozen=True, slots=True)
class Origin:
    """The remote: a pull request renames an input of one model, and `main` has renamed one of another model since."""

    folder: Path
    start: str  # where the branch started
    base: str  # the newest commit of `main`
    head: str
    merge: str

    def event(self, **changed: Any) -> dict[str, Any]:
        """Return the event of the pull request."""
        base = {"sha": self.base, "ref": "main", "repo": {"full_name": "team/models"}}
        head = {"sha": self.head, "ref": "change", "repo": {"full_name": "team/models"}, **changed}
        return {"pull_request": {"number": 7, "base": base, "head": head}}


@pytest.fixture(scope="session")
def history(installed: Path, shared_folder: Path) -> Path:
    """Create the remote once."""
    folder = shared_folder / "baselines"
    with FileLock(shared_folder / "baselines.lock"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _make_history(consumer(folder / "origin", installed))
            (folder / "ready").touch()
    return folder / "origin"


def _make_history(repository: Consumer) -> None:
    folder = repository.folder
    git(folder, "switch", "--quiet", "--create", "change")
    for message in ("first", "second"):
        repository.model("models/a.onnx", input=f"renamed_{message}")
        repository.lock("models/a.onnx", "--offline")
        repository.commit(message)
    git(folder, "switch", "--quiet", "main")
    repository.model("models/b.onnx", input="renamed_on_main")
    repository.lock("models/b.onnx", "--offline")
    repository.commit("on main")
    git(folder, "tag", "base")
    repository.merge()
    git(folder, "update-ref", MERGE, "HEAD")
    git(folder, "switch", "--quiet", "main")


@pytest.fixture
def origin(history: Path, tmp_path: Path) -> Origin:
    """Return a copy of the remote, which tests may remove."""
    folder = Path(shutil.copytree(history, tmp_path / "origin"))
    commits = {name: git(folder, "rev-parse", name) for name in ("change~2", "base", "change", MERGE)}
    return Origin(folder, *commits.values())


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the action for one event."""

    engine: Engine
    origin: Origin

    def checkout(self, ref: str, depth: int = 1) -> Run:
        """Check out a commit as `actions/checkout` does."""
        folder = self.engine.workspace
        git(folder, "init", "--quiet")
        git(folder, "remote", "add", "origin", self.origin.folder.as_uri())
        git(folder, "fetch", "--quiet", "--no-tags", f"--depth={depth}", "origin", ref)
        git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        return self

    def cut(self) -> Run:
        """Make the remote unreachable."""
        shutil.rmtree(self.origin.folder)
        return self

    def use(self, event: object, ref: str, sha: str = "", path: str = "", **inputs: str) -> ActionRun:
        """Use the action in a run for an event."""
        file = self.engine.scratch / "event.json"
        file.write_text(json.dumps(event), encoding="utf-8")
        variables = {"GITHUB_EVENT_PATH": str(file), "GITHUB_REF": ref, "GITHUB_EVENT_NAME": ""}
        variables |= {"GITHUB_SHA": sha} if sha else {}
        variables |= {"PATH": path} if path else {}
        engine = replace(self.engine, environment={**self.engine.environment, **variables})
        return engine.use(stages="file,lock,support", cache="false", **inputs)

    def for_request(self, **inputs: str) -> ActionRun:
        """Use the action in a run for the pull request."""
        return self.use(self.origin.event(), MERGE, self.origin.merge, **inputs)


@pytest.fixture
def run(engine: Engine, origin: Origin) -> Run:
    """Return a run in an empty workspace."""
    return Run(engine, origin)


def found(ran: ActionRun) -> tuple[str, str, list[str]]:
    """Return the verdict, the baseline and the errors about changes."""
    report = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
    against = report["against"]["commit"] if report["against"] else ""
    errors = [f"{it['rule']} {it['model']}" for it in report["findings"] if it["level"] == "error"]
    return ran.outputs["verdict"], against, errors


def missing(ran: ActionRun) -> str:
    """Return why the baseline is missing. It makes the check undecided, and is in log, summary and annotations."""
    report = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
    (undecided,) = report["undecided"]
    assert (ran.outputs["verdict"], ran.outputs["exit-code"], ran.conclusion) == ("undecided", "3", "failure"), ran.log
    assert (undecided["stage"], undecided["model"], report["against"]) == ("lock", "", None)
    assert "the baseline is not available" in ran.summary
    assert "the baseline is not available" in ran.steps["gate"].log
    assert any("the baseline is not available" in annotation.data for annotation in ran.annotations)
    reason, hint = undecided["reason"], undecided["hint"]
    assert hint.endswith("; to check without a baseline, use `--against none` (action input `against: none`)")
    return f"{reason.removeprefix('the baseline is not available: ')}; {hint.partition(';')[0]}"


@pytest.mark.parametrize(("depth", "is_reachable"), [(1, True), (2, True), (2, False)])
def test_pull_request(run: Run, origin: Origin, depth: int, is_reachable: bool) -> None:
    """GitHub's merge is compared with its first parent, which a clone of depth 2 contains."""
    run.checkout(MERGE, depth)
    ran = (run if is_reachable else run.cut()).for_request()

    assert found(ran) == ("fail", origin.base, BROKEN)


def test_pull_request_without_remote(run: Run, origin: Origin) -> None:
    """At depth 1, the parent must be fetched."""
    reason = missing(run.checkout(MERGE).cut().for_request())

    assert reason == (
        f"the base commit is `{origin.base[:12]}`; it could not be fetched from `origin`: "
        f"'{origin.folder}' does not appear to be a git repository; set `fetch-depth: 2` for `actions/checkout`"
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_head_of_a_pull_request(run: Run, origin: Origin, depth: int) -> None:
    """With `ref: head.sha`, the baseline is the commit at which the branch started; changes of `main` are not shown."""
    assert found(run.checkout(origin.head, depth).for_request()) == ("fail", origin.start, BROKEN)


def test_head_of_a_pull_request_without_remote(run: Run, origin: Origin) -> None:
    """The hint names the setting that fetches the whole history."""
    reason = missing(run.checkout(origin.head).cut().for_request())

    assert reason.startswith(f"the merge base with `{origin.base[:12]}` is unknown: ")
    assert reason.endswith("; set `fetch-depth: 0` for `actions/checkout`")


def test_fork(run: Run, origin: Origin) -> None:
    """The merge of a fork's branch is in the base repository, and is compared like any other."""
    event = origin.event(repo={"full_name": "somebody/models", "fork": True})
    ran = run.checkout(MERGE).use(event, MERGE, origin.merge)

    assert found(ran) == ("fail", origin.base, BROKEN)


def test_merge_queue(run: Run, origin: Origin) -> None:
    """A merge group is compared with the base commit of its event."""
    event = {"merge_group": {"base_sha": origin.base, "head_ref": QUEUE}}

    assert found(run.checkout(origin.merge).use(event, QUEUE, origin.merge)) == ("fail", origin.base, BROKEN)


def test_merge_queue_without_remote(run: Run, origin: Origin) -> None:
    """A merge group whose base cannot be fetched must not be merged."""
    event = {"merge_group": {"base_sha": origin.base, "head_ref": QUEUE}}
    reason = missing(run.checkout(origin.merge).cut().use(event, QUEUE, origin.merge))

    assert reason.startswith(f"the base commit is `{origin.base[:12]}`; it could not be fetched from `origin`: ")
    assert reason.endswith("; set `fetch-depth: 0` for `actions/checkout`")


@pytest.mark.parametrize("is_reachable", [True, False])
def test_push(run: Run, origin: Origin, is_reachable: bool) -> None:
    """A push is compared with the commit before it, or is undecided."""
    event = {"before": origin.base, "repository": {"default_branch": "main"}}
    run.checkout(origin.merge)
    if is_reachable:
        assert found(run.use(event, "refs/heads/main")) == ("fail", origin.base, BROKEN)
    else:
        assert "set `fetch-depth: 0`" in missing(run.cut().use(event, "refs/heads/main"))


def without_repository(run: Run) -> str:
    """Remove `.git`, and return the reason that is expected."""
    shutil.rmtree(run.engine.workspace / ".git")
    return "the project is not in a git repository; check out the repository with `actions/checkout`"


def without_git(run: Run) -> str:
    """Return the reason that is expected if git is not installed."""
    why = "install git before `actions/checkout`, which otherwise downloads the files without the repository"
    return f"git is not installed; {why}"


@pytest.mark.parametrize("lose", [without_repository, without_git])
def test_no_repository(run: Run, tmp_path: Path, lose: Callable[[Run], str]) -> None:
    """Without git or the repository, a pull request cannot be compared."""
    run.checkout(MERGE)
    expected = lose(run)
    shutil.rmtree(run.engine.workspace / ".git", ignore_errors=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bash").symlink_to(need("bash"))
    ran = run.for_request(path=str(tmp_path / "bin") if lose is without_git else "")

    assert missing(ran) == expected


def test_runs_without_an_earlier_state(run: Run, origin: Origin) -> None:
    """A scheduled run passes without a remote, with a remark."""
    ran = run.checkout(origin.merge).cut().use({"schedule": "0 4 * * *"}, "refs/heads/main")

    assert found(ran) == ("pass", "", [])
    assert "no baseline: the previous commit is unknown; set `--against REF`" in ran.steps["gate"].log


def test_no_baseline_is_wanted(run: Run) -> None:
    """With `against: none`, a missing baseline is not an issue; the summary names what the workflow leaves out."""
    ran = run.checkout(MERGE).cut().for_request(against="none")

    assert found(ran) == ("pass", "", [])
    assert "no baseline (`--against none`)" in ran.steps["gate"].log
    assert "no baseline" in ran.summary


def test_shards_without_a_baseline(run: Run, tmp_path: Path) -> None:
    """Merged shards are undecided for the same reason as the whole check."""
    run.checkout(MERGE).cut()
    reports = []
    for number in (1, 2):
        (tmp_path / f"shard-{number}").mkdir()
        shard = replace(run, engine=replace(run.engine, scratch=tmp_path / f"shard-{number}"))
        reports.append(shard.for_request(shard=f"{number}/2").outputs["report"])
    (tmp_path / "merge").mkdir()
    merging = replace(run.engine, scratch=tmp_path / "merge")
    merged = merging.use(command="merge", paths="\n".join(reports), cache="false")

    assert missing(merged) == missing(run.for_request())
