"""The hooks, run by pre-commit and prek from a local clone of this checkout."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import need
from tests.harness.repositories.checkout import NOBODY, ROOT, commit, copy_tree, git

pytestmark = [pytest.mark.surface, pytest.mark.index]

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"
MODEL = "models/classifier.onnx"


@dataclass(frozen=True, slots=True)
class Hooks:
    """One hook runner in one project."""

    program: Path
    project: Path
    home: Path

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the hooks and return the exit status and the output."""
        homes = {"PRE_COMMIT_HOME": str(self.home), "PREK_HOME": str(self.home)}
        result = subprocess.run(
            [self.program, "run", *arguments],
            cwd=self.project,
            env={**os.environ, **NOBODY, **homes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return result.returncode, result.stdout

    def results(self, *arguments: str) -> tuple[dict[str, str], str]:
        """Return the result of each hook, and the whole output."""
        _, printed = self.run(*arguments)
        actual = re.findall(r"^(onnxgate: [^.]*)\.+(?:\(.*?\))?(Passed|Failed|Skipped)$", printed, re.MULTILINE)
        return {name.removeprefix("onnxgate: "): result for name, result in actual}, printed


@pytest.fixture(scope="module", params=["pre-commit", "prek"])
def runner(request: pytest.FixtureRequest, shared_folder: Path) -> tuple[Path, Path]:
    """Return a hook runner and the folder for its environments."""
    return need(request.param), shared_folder / request.param


@pytest.fixture
def hooks(runner: tuple[Path, Path], clone: Path, tmp_path: Path) -> Hooks:
    """Create the quickstart project as a repository that uses the hooks of the clone."""
    project = copy_tree(ROOT / "fixtures/projects/quickstart", tmp_path / "project")
    config = project / ".pre-commit-config.yaml"
    text = config.read_text(encoding="utf-8")
    text = re.sub(r"repo: .*", f"repo: {clone}", text)
    config.write_text(re.sub(r"rev: .*", f"rev: {git(clone, 'rev-parse', 'HEAD')}", text), encoding="utf-8")
    commit(project)
    return Hooks(runner[0], project, runner[1])


def change(hooks: Hooks, name: str, text: str) -> None:
    """Write a file of the project and stage it."""
    (hooks.project / name).write_text(text, encoding="utf-8")
    git(hooks.project, "add", "--all")


def test_they_pass_on_quickstart(hooks: Hooks) -> None:
    """The static hooks pass; the hook for all stages runs only before a push."""
    results, printed = hooks.results("--all-files")

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed


def test_a_pointer_to_other_content_fails(hooks: Hooks) -> None:
    """A Git LFS pointer that does not match the locked model is undecided, so that the hook fails."""
    change(hooks, MODEL, POINTER.format(oid="0" * 64, size=12345))

    results, printed = hooks.results()

    assert results == {"changed models": "Failed", "config, lock and models": "Failed"}, printed
    assert "is a Git LFS pointer (content not fetched)" in printed


def test_a_pointer_to_the_locked_content_passes(hooks: Hooks) -> None:
    """A pointer's digest proves that the content is the locked model, without fetching it."""
    content = (hooks.project / MODEL).read_bytes()
    oid = subprocess.run(["sha256sum"], input=content, capture_output=True, check=True).stdout.decode().split()[0]
    change(hooks, MODEL, POINTER.format(oid=oid, size=len(content)))

    results, printed = hooks.results()

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed


def test_a_model_that_is_not_locked_fails(hooks: Hooks) -> None:
    """A new model without a lock entry is reported before it is committed."""
    (hooks.project / "models/second.onnx").write_bytes((hooks.project / MODEL).read_bytes())
    git(hooks.project, "add", "--all")

    results, printed = hooks.results()

    assert results == {"changed models": "Failed", "config, lock and models": "Failed"}, printed
    assert "unlocked-model" in printed


def test_a_changed_target_fails_until_it_is_locked(hooks: Hooks) -> None:
    """A change of the config can make the lock stale even if no model changed."""
    config = (hooks.project / "onnxgate.toml").read_text(encoding="utf-8")
    change(hooks, "onnxgate.toml", config.replace('select = "minors"', 'select = "bounds"'))

    results, printed = hooks.results()

    assert results == {"changed models": "Failed", "config, lock and models": "Failed"}, printed
    assert "lock-stale" in printed


def test_a_commit_of_the_lock_checks_all_models(hooks: Hooks) -> None:
    """A pin can be changed without changing a model."""
    lock = (hooks.project / "onnxgate.lock").read_text(encoding="utf-8")
    change(hooks, "onnxgate.lock", f"{lock}\n")

    results, printed = hooks.results("--verbose")

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed
    assert "pass: 2 models on" in printed


def test_a_model_that_is_not_staged_is_named(hooks: Hooks) -> None:
    """A new model that is neither staged nor ignored is named, although the commit passes."""
    config = (hooks.project / "onnxgate.toml").read_text(encoding="utf-8")
    change(hooks, "onnxgate.toml", config.replace('models = ["models/**/*.onnx"]\n', ""))
    (hooks.project / ".gitignore").write_text("ignored.onnx\n", encoding="utf-8")
    for name in ("models/new.onnx", "models/ignored.onnx"):
        (hooks.project / name).write_bytes((hooks.project / MODEL).read_bytes())

    results, printed = hooks.results()

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed
    note = "note: `models/new.onnx` is not tracked by git and is not checked; run `git add models/new.onnx`"
    assert note in printed
    assert "ignored.onnx" not in printed


@pytest.fixture
def monorepo(hooks: Hooks) -> Hooks:
    """Move the project to a folder, and add a copy of it and files of no project; the root has no config."""
    for name in ("a", "b"):
        copy_tree(ROOT / "fixtures/projects/quickstart", hooks.project / name)
        (hooks.project / name / ".pre-commit-config.yaml").unlink()
    for path in ("models", "export", "onnxgate.toml", "onnxgate.lock"):
        git(hooks.project, "rm", "-r", "--quiet", path)
    (hooks.project / "firmware.bin").write_text("no model", encoding="utf-8")
    (hooks.project / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    commit(hooks.project)
    return hooks


def test_one_entry_serves_all_projects(monorepo: Hooks) -> None:
    """Each file is checked with the nearest config, and each lock is checked."""
    results, printed = monorepo.results("--all-files", "--verbose")

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed
    assert len(re.findall("pass: 2 models on", printed)) == 2
    assert len(re.findall("`onnxgate.lock` is up to date: 2 models", printed)) == 2


def test_one_project_of_several_fails(monorepo: Hooks) -> None:
    """A problem in one project fails the hooks, and its commands name the folder."""
    (monorepo.project / "b/models/second.onnx").write_bytes((monorepo.project / "b" / MODEL).read_bytes())
    git(monorepo.project, "add", "--all")

    results, printed = monorepo.results()

    assert results == {"changed models": "Failed", "config, lock and models": "Failed"}, printed
    assert "run `onnxgate lock` (in the folder `b`)" in printed
    assert re.search(r"a/onnxgate.toml:\s+`onnxgate.lock` is up to date", printed)


def test_binary_files_that_belong_to_no_model_pass(hooks: Hooks) -> None:
    """A `.bin` file is not necessarily the data of a model."""
    change(hooks, "firmware.bin", "no model")

    results, printed = hooks.results()

    assert results == {"changed models": "Passed", "config, lock and models": "Passed"}, printed


@pytest.mark.skipif(os.name == "nt", reason="a POSIX layout of environments")
def test_the_environment_is_small_and_pinned(hooks: Hooks) -> None:
    """The static hooks install the pinned packages only, and at most 120 MB of files; the first run adds bytecode."""
    hooks.results("--all-files")
    packages = (found.parent for found in hooks.home.glob("**/site-packages/onnxgate"))
    [site] = [folder for folder in packages if not (folder / "uv").exists()]
    installed = {(canonicalize_name(found.name), found.version) for found in metadata.distributions(path=[str(site)])}
    python = {"python_full_version": f"{site.parent.name.removeprefix('python')}.0"}
    lines = (ROOT / "requirements-hooks.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    selected = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(python)]
    unpinned = {"onnxgate", "pip", "setuptools", "wheel"}  # virtualenv installs the last three itself
    files = (path for path in site.parents[2].rglob("*") if path.suffix != ".pyc")
    size = sum(path.lstat().st_blocks for path in files) * 512

    actual = {(name, version) for name, version in installed if name not in unpinned}
    assert {(pin.name, str(pin.specifier).removeprefix("==")) for pin in selected} == actual
    assert size <= 120 * 2**20


@pytest.mark.torch
def test_the_whole_gate_runs_by_hand(
    hooks: Hooks, installed: Path, toolchain: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`onnxgate-run` re-exports with the active environment, although the hook has its own. One model is enough."""
    monkeypatch.setenv("ONNXGATE_CACHE_DIR", str(cache))
    monkeypatch.setenv("VIRTUAL_ENV", str(toolchain.parent.parent))
    monkeypatch.setenv("PATH", str(toolchain.parent), prepend=os.pathsep)
    config = (hooks.project / "onnxgate.toml").read_text(encoding="utf-8")
    config, _, encoder = config.replace('select = "minors"', 'select = "newest"').partition(
        '[[model]]\npath = "models/encoder'
    )
    assert encoder
    (hooks.project / "models/encoder.onnx").unlink()
    change(hooks, "onnxgate.toml", config)
    subprocess.run([installed, "lock"], cwd=hooks.project, check=True, capture_output=True)
    commit(hooks.project)

    results, printed = hooks.results("--hook-stage", "manual", "onnxgate-run")

    assert results == {"all stages": "Passed"}, printed
    assert "pass: 1 model on 2 runtimes" in printed
