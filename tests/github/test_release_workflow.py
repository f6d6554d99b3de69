"""The release workflow: its permissions, its build in a real Actions engine, and the tag of the major version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from onnxgate import __version__
from tests.conftest import need
from tests.harness.github.act import Actor, Workflow, stubs
from tests.harness.repositories.checkout import NOBODY, ROOT, commit, git

TEXT = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
TAG = f"v{__version__}"
GH = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["GH_LOG"], "a") as log:
    print(json.dumps([argument for argument in sys.argv[1:] if argument != "--silent"]), file=log)
if "--paginate" in sys.argv:
    print(os.environ["GH_TAGS"].replace(" ", "\\n"))
if any(argument.endswith("/git/ref/tags/v1") for argument in sys.argv):
    sys.exit(int(os.environ["GH_MISSING"]))
"""


def test_only_one_job_can_sign() -> None:
    """The job that may sign and publish runs no script, and checks out no repository."""
    signing = [name for name, job in JOBS.items() if "id-token" in job["permissions"]]
    [publish] = (JOBS[name] for name in signing)

    assert ["publish"] == signing
    assert "pypi" == publish["environment"]["name"]
    assert [] == [step for step in publish["steps"] if "run" in step or "checkout" in step["uses"]]
    assert {"contents": "read"} == JOBS["build"]["permissions"]


def test_jobs_run_one_after_the_other() -> None:
    """Nothing is published before the check, and the tag of the major version moves last."""
    assert [None, "build", "publish"] == [job.get("needs") for job in JOBS.values()]
    assert "Move the tag of the major version" == JOBS["release"]["steps"][-1]["name"]


@pytest.mark.skipif(sys.platform != "linux", reason="the job runs on Linux")
@pytest.mark.parametrize(
    ("tag", "tags", "missing", "expected"),
    [
        ("v1.2.0", "v1.1.0 v1.2.0", 0, ["PATCH", "repos/o/r/git/refs/tags/v1", "sha=c0ffee", "force=true"]),
        ("v1.10.0", "v1.10.0 v1.9.1", 0, ["PATCH", "repos/o/r/git/refs/tags/v1", "sha=c0ffee", "force=true"]),
        ("v1.0.0", "v1.0.0", 1, ["POST", "repos/o/r/git/refs", "ref=refs/tags/v1", "sha=c0ffee"]),
        ("v1.1.1", "v1.1.1 v1.2.0", 0, []),
        ("v1.2.0", "v1.2.0 v1.3.0-rc1 v1.2", 0, ["PATCH", "repos/o/r/git/refs/tags/v1", "sha=c0ffee", "force=true"]),
    ],
)
def test_major_tag_follows_the_newest_release(
    tmp_path: Path, tag: str, tags: str, missing: int, expected: list[str]
) -> None:
    """A release moves or creates the tag, except a patch of an older minor release."""
    (tmp_path / "gh").write_text(GH, encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    script = JOBS["release"]["steps"][-1]["run"]
    named = " ".join(f"refs/tags/{name}" for name in tags.split())
    environment = {"TAG": tag, "GH_REPO": "o/r", "GITHUB_SHA": "c0ffee", "GH_TAGS": named, "GH_MISSING": str(missing)}
    search = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "GH_LOG": str(tmp_path / "log")}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-c", script],
        env={**os.environ, **NOBODY, **environment, **search},
        capture_output=True,
        text=True,
        check=False,
    )

    calls = [json.loads(line) for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines()]
    written = [
        argument for call in calls if "--method" in call for argument in call[2:] if not argument.endswith("field")
    ]
    assert (0, expected) == (done.returncode, written), done.stderr
    assert ("::notice::" in done.stdout) is not bool(expected)


@pytest.fixture(scope="module")
def released(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone whose changelog has the date of the release, and whose branch `main` is known."""
    folder = tmp_path_factory.mktemp("released") / "repository"
    shutil.copytree(clone, folder, symlinks=True)
    changelog = folder / "CHANGELOG.md"
    text = re.sub(
        rf"## {re.escape(__version__)} \(.*\)", f"## {__version__} (2026-12-01)", changelog.read_text("utf-8")
    )
    changelog.write_text(text, encoding="utf-8")
    revision = commit(folder)
    git(folder, "update-ref", "refs/remotes/origin/main", revision)
    return folder


def build(repository: Path, folder: Path, tag: str) -> Workflow:
    """Run the first job for a tag."""
    workflow = {**yaml.safe_load(TEXT), "jobs": {"build": JOBS["build"]}}
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads `on` as true
    (folder / "workflow.yml").write_text(yaml.safe_dump(workflow), encoding="utf-8")
    actor = Actor(need("act"), repository, folder, stubs(folder / "stubs", [TEXT]))
    event = {"ref": f"refs/tags/{tag}"}
    return actor.start(folder / "workflow.yml", "push", event, STUB_PYTHON=sys.executable, STUB_FOLDER=str(folder))


@pytest.mark.surface
@pytest.mark.index
def test_build_makes_the_files_of_the_release(released: Path, tmp_path: Path) -> None:
    """The job builds an sdist and a wheel, runs the wheel, and takes the notes from the changelog."""
    ran = build(released, tmp_path, TAG)
    files = [path.name for path in sorted((tmp_path / "artifacts").glob("*/**/*")) if path.is_file()]

    assert 0 == ran.status, ran.log()
    assert [f"onnxgate-{__version__}-py3-none-any.whl", f"onnxgate-{__version__}.tar.gz", "notes.md"] == files
    assert (tmp_path / "artifacts/notes/notes.md").read_text(encoding="utf-8").startswith("First release.")


@pytest.mark.surface
@pytest.mark.index
def test_build_refuses_another_version(released: Path, tmp_path: Path) -> None:
    """A tag that is not the version of the package fails before anything is built."""
    ran = build(released, tmp_path, "v9.9.9")

    assert 1 == ran.status
    assert f"the version is {__version__}, but the tag is v9.9.9" in ran.log()
    assert not (tmp_path / "artifacts").exists()
