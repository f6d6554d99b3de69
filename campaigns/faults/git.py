"""Missing, failing or hanging git, and damaged repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.other_releases import doctored
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault


def without_models(ground: Ground) -> None:
    """Remove `models` from the config, so that git is used to find models."""
    config = ground.project / "onnxgate.toml"
    config.write_text(config.read_text().replace('models = ["models/*.onnx"]\n', ""))
    ground.run("lock", "--offline", expected=(0,), locks=())


def fake_git(ground: Ground, script: str) -> str:
    """Return a PATH with a `git` command that runs this script."""
    folder = ground.folder / "fake git"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@fault("git", "git is not installed", quick=True, runs=False)
def git_missing(ground: Ground) -> Iterator[FaultOutcome]:
    """Models are found without git; operations that need git report an error."""
    without_models(ground)
    empty = ground.folder / "empty"
    empty.mkdir()
    variables = {"PATH": empty}
    yield ground.check("--static", expected=(0,), variables=variables)
    yield ground.check("--static", "--against", "HEAD", expected=(2, 3), true=False, variables=variables)


@fault("git", "every git command fails", quick=True, runs=False)
def git_fails(ground: Ground) -> Iterator[FaultOutcome]:
    """Models are found without git; operations that need git report an error."""
    without_models(ground)
    variables = {"PATH": fake_git(ground, "echo 'fatal: detected dubious ownership' >&2; exit 128")}
    yield ground.check("--static", expected=(0,), variables=variables)
    yield ground.check("--static", "--against", "HEAD", expected=(2, 3), true=False, variables=variables)


@fault("git", "every git command hangs")
def git_hangs(ground: Ground) -> Iterator[FaultOutcome]:
    """The git command times out and is killed with its child processes."""
    without_models(ground)
    ground.truth("--static")
    patience = {"project/git/repository.py": (r"^LOCAL_TIMEOUT_S = \d+", "LOCAL_TIMEOUT_S = 2")}
    variables = {**doctored(ground, "less patient", patience), "PATH": fake_git(ground, "exec sleep 600")}
    yield ground.check("--static", expected=(0, 3), variables=variables, patience_s=60)
    arguments = ("--static", "--against", "HEAD")
    yield ground.check(*arguments, expected=(2, 3), true=False, variables=variables, patience_s=60)


@fault("git", "git commands print garbage")
def git_garbage(ground: Ground) -> Iterator[FaultOutcome]:
    """Invalid bytes and names of missing files in the output do not cause a crash."""
    without_models(ground)
    variables = {"PATH": fake_git(ground, r"printf 'nowhere.onnx\0\377\376.onnx\0'")}
    yield ground.check("--static", expected=(1, 2, 3), variables=variables)
    arguments = ("--static", "--against", "HEAD")
    yield ground.check(*arguments, expected=(1, 2, 3), true=False, variables=variables)


@fault("git", "the repository belongs to another user")
def git_owned_by_another(ground: Ground) -> Iterator[FaultOutcome]:
    """The repository is read although it belongs to another user, as in a container."""
    if os.geteuid() != 0:
        pytest.skip("only root can change the owner of files")
    without_models(ground)
    for here, folders, names in os.walk(ground.project):
        for name in (*folders, *names, "."):
            os.chown(Path(here, name), 65534, 65534, follow_symlinks=False)
    yield ground.check("--static", expected=(0,))
    yield ground.check("--static", "--against", "HEAD", expected=(0,), true=False)


@fault("git", "the git index is damaged")
def git_index_damaged(ground: Ground) -> Iterator[FaultOutcome]:
    """Models are found without the index."""
    without_models(ground)
    (ground.project / ".git" / "index").write_bytes(b"nonsense")
    yield ground.check("--static", expected=(0,))
    yield ground.check("--static", "--against", "HEAD", expected=(0, 2, 3), true=False)


@fault("git", "git objects are missing or damaged")
def git_objects_damaged(ground: Ground) -> Iterator[FaultOutcome]:
    """A baseline that cannot be read is reported as an error."""
    for path in (ground.project / ".git" / "objects").glob("??/*"):
        path.chmod(0o644)
        path.write_bytes(b"")
    yield ground.check("--static", expected=(0,))
    yield ground.check("--static", "--against", "HEAD", expected=(2, 3), true=False)


@fault("git", "the baseline is missing in a shallow clone")
def git_shallow_clone(ground: Ground) -> Iterator[FaultOutcome]:
    """The baseline is fetched, or reported as missing."""
    (ground.project / "note").touch()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run([*git, "add", "."], cwd=ground.project, check=True)
    subprocess.run([*git, "commit", "-qm", "more"], cwd=ground.project, check=True)
    clone = ground.folder / "clone"
    source = ground.project.rename(ground.folder / "origin")
    subprocess.run(["git", "clone", "-q", "--depth=1", source.as_uri(), str(clone)], check=True)
    clone.rename(ground.project)
    yield ground.check("--static", "--against", "HEAD~1", expected=(0, 2), true=False, about="fetched")
    source.rename(ground.folder / "moved away")
    for each in ("HEAD~2", "v1.0"):
        yield ground.check("--static", "--against", each, expected=(2, 3), true=False, about=each)
