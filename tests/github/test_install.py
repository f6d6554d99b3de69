"""The action installs verified wheels on every runner, or reports in one line why it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onnxgate.formats.markdown import VERDICT_MARKS
from onnxgate.github import error_report
from onnxgate.github.install import CHANGED_WHEELS, prepare
from onnxgate.project.toml import loads
from tests.harness.github.actions_engine import ActionRun, Engine
from tests.harness.repositories.checkout import ROOT

UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
FAKE = """#!/bin/sh
case "$*" in
  *sys.exit*) exit {status} ;;
  --version) echo '{name}' ;;
  *) echo "started: $0" ;;
esac
"""
"""A Python that does not run code: it is suitable if `status` is 0."""


def fake(path: Path, name: str, status: int = 1) -> Path:
    """Create a stand-in for an interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE.format(name=name, status=status), encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(engine: Engine, tmp_path: Path) -> Engine:
    """Return an engine that installs the action, on a runner without Python."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "sort", "tr", "sh", "mkdir"):
        (programs / name).symlink_to(shutil.which(name) or name)
    environment = {**engine.environment, "PATH": str(programs)}
    return replace(engine, environment=environment, stubs={"packages": lambda _: {}, "python": lambda _: {}})


def use(engine: Engine, environment: Mapping[str, str]) -> ActionRun:
    """Run the action in a changed environment."""
    return replace(engine, environment={**engine.environment, **environment}).use()


def real(version: str) -> Path:
    """Return a real interpreter of this version; skip the test if there is none."""
    home = Path(os.environ.get("PYENV_ROOT", "/nonexistent"), "versions")
    found = next(iter(sorted(home.glob(f"{version}.*/bin/python"))), None)
    if found is None:
        pytest.skip(f"no Python {version} here")
    return found


def assert_reported(ran: ActionRun, problem: str) -> None:
    """Assert that the action ended with one annotation, a summary and outputs."""
    [said] = ran.annotations
    hint = 'set the input `python-version: "3.12"` of the action'
    assert f"onnxgate requires CPython 3.10 or newer; {problem}\nhint: {hint}" == said.data
    assert ("failure", "undecided", "3") == (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]), ran.log
    assert f"; {problem}\nhint: {hint}\n```\n" in ran.summary
    assert ran.summary.startswith(f"## {VERDICT_MARKS['undecided']} onnxgate\n\n**Undecided: ")
    assert 1 == len([line for line in ran.log.splitlines() if line]), "pip or Python printed something"


def test_without_python_the_remedy_is_reported(bare: Engine) -> None:
    """A container may have no Python at all."""
    assert_reported(bare.use(), "no Python was found on PATH")


@pytest.mark.parametrize("version", ["3.8", "3.9", "2.7"])
def test_an_old_python_is_reported(bare: Engine, version: str, tmp_path: Path) -> None:
    """The message names the version before pip prints anything."""
    (tmp_path / "programs" / "python").symlink_to(real(version))
    ran = bare.use()

    [said] = ran.annotations
    assert_reported(ran, said.data.partition("; ")[2].partition("\n")[0])
    assert f"found Python {version}." in said.data


def test_another_implementation_is_reported(bare: Engine, tmp_path: Path) -> None:
    """There are no wheels for PyPy."""
    fake(tmp_path / "programs" / "python3", "Python 3.11.11 (0a1b)\n[PyPy 7.3.20]")

    assert_reported(bare.use(), "found Python 3.11.11 0a1b PyPy 7.3.20")


def test_another_program_is_not_python(bare: Engine, tmp_path: Path) -> None:
    """Windows has a program `python3` that opens its store."""
    fake(tmp_path / "programs" / "python3", "Python was not found; run without arguments to install")

    assert_reported(bare.use(), "no Python was found on PATH")


def test_the_repository_is_not_imported(bare: Engine, tmp_path: Path) -> None:
    """Python would import modules of the working directory before its own."""
    for name in ("platform", "sys", "onnxgate"):
        (bare.workspace / f"{name}.py").write_text("print('owned')", encoding="utf-8")
    (tmp_path / "programs" / "python3").symlink_to(real("3.9"))

    assert_reported(bare.use(), f"found Python {real('3.9').parents[1].name}")


def test_a_hostile_version_is_only_text(bare: Engine, tmp_path: Path) -> None:
    """The output of a program on PATH must not become a command."""
    fake(tmp_path / "programs" / "python3", "Python 3%0A::error::owned `id`")

    assert_reported(bare.use(), "found Python 30Aerrorowned id")


def test_an_old_python_of_the_input_is_reported(bare: Engine, tmp_path: Path) -> None:
    """The input `python-version` wins over PATH, also if it is too old."""
    old = fake(tmp_path / "old" / "python", "Python 3.9.1")
    fake(tmp_path / "programs" / "python3", "CPython 3.12.1", status=0)
    ran = replace(bare, stubs={**bare.stubs, "python": lambda _: {"python-path": str(old)}}).use(python_version="3.9")

    assert_reported(ran, "found Python 3.9.1")


@pytest.mark.parametrize(
    ("on_path", "cached", "started"),
    [
        ({"python3": 0}, {"3.13.1": 0}, "programs/python3"),
        ({"python3": 1, "python": 0}, {"3.13.1": 0}, "programs/python"),
        ({"python3": 1, "python3.11": 0}, {"3.13.1": 0}, "programs/python3.11"),
        ({"python3": 1}, {"3.9.20": 1, "3.10.4": 0, "3.13.1": 0, "3.8.9": 1}, "Python/3.13.1/x64/bin/python3"),
        ({}, {"3.9.20": 1, "3.10.4": 0}, "Python/3.10.4/x64/bin/python3"),
        ({}, {"3.14.2": 0, "3.9.20": 1, "3.13.1": 0}, "Python/3.14.2/x64/bin/python3"),
    ],
)
def test_the_first_suitable_python_is_used(
    bare: Engine, tmp_path: Path, on_path: dict[str, int], cached: dict[str, int], started: str
) -> None:
    """PATH comes first, then the newest Python in the runner's tool cache."""
    for name, status in on_path.items():
        fake(tmp_path / "programs" / name, "CPython", status)
    for version, status in cached.items():
        fake(tmp_path / "tools with space" / "Python" / version / "x64" / "bin" / "python3", "CPython", status)
    ran = use(bare, {"RUNNER_TOOL_CACHE": str(tmp_path / "tools with space")})

    assert ran.steps["setup"].log.strip().endswith(started)


def test_the_installer_needs_only_the_standard_library() -> None:
    """It runs before onnxgate's dependencies are installed."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import onnxgate.github.install"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(ROOT)], check=True)

    assert error_report.MARKS.items() <= VERDICT_MARKS.items()


def test_the_cache_entry_depends_on_what_is_installed(tmp_path: Path) -> None:
    """Other pins and other platforms have other entries; onnxgate itself is not in the cache."""
    action = tmp_path / "action"
    (action / "onnxgate").mkdir(parents=True)
    (action / "requirements.txt").write_text("a==1\n", encoding="utf-8")
    environment = {"RUNNER_TEMP": str(tmp_path), "RUNNER_OS": "Linux", "RUNNER_ARCH": "X64"}
    first = prepare(action, environment)
    again = prepare(action, environment)
    other = prepare(action, {**environment, "RUNNER_ARCH": "ARM64"})
    (action / "requirements.txt").write_text("a==2\n", encoding="utf-8")
    changed = prepare(action, environment)

    assert (first.key, first.wheels) == (again.key, again.wheels)
    assert str(sysconfig.get_config_var("EXT_SUFFIX")) in first.key
    assert 3 == len({first.key, other.key, changed.key})
    assert 4 == len({first.folder, again.folder, other.folder, changed.folder})


def test_the_requirements_satisfy_the_package() -> None:
    """Each dependency is pinned with hashes, within the range that the package requires, and so is each of theirs."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    entries = re.findall(
        r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+))? \\\n((?:    --hash=sha256:\S+(?: \\)?\n?)+)", text, re.MULTILINE
    )
    pinned = {name: [version for own, version, *_ in entries if own == name] for name, *_ in entries}
    needed = map(Requirement, loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])

    assert text.count("==") - text.count("python_full_version ==") == len(entries)
    assert {} == {
        it.name: pinned.get(it.name) for it in needed if not all(map(it.specifier.contains, pinned.get(it.name, [""])))
    }


@pytest.fixture
def installing(engine: Engine) -> Engine:
    """Return an engine that installs the action with the running Python."""
    environment = {**os.environ, **engine.environment, "PATH": f"{Path(sys.base_prefix, 'bin')}:/usr/bin:/bin"}
    stubs = {"packages": lambda _: {}, "actions/cache/save": lambda _: {}}
    return replace(engine, environment=environment, stubs=stubs)


def test_an_unreachable_index_is_reported(installing: Engine) -> None:
    """The error of pip is an annotation and in the summary; the outputs exist."""
    ran = use(installing, UNREACHABLE)

    [said] = ran.annotations
    assert said.data.startswith("the packages of onnxgate could not be downloaded: "), said.data
    assert "hint: check that the runner can reach the package index" in said.data
    assert ("failure", "undecided", "3") == (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"])
    assert "**Undecided: onnxgate stopped with an error (exit status 3)**" in ran.summary
    assert "Traceback" not in ran.log


def test_a_forged_uv_is_not_started(installing: Engine, tmp_path: Path) -> None:
    """The cache is not trusted: uv verifies all other wheels, so its own hash is verified first."""
    marker, wheels = tmp_path / "started", tmp_path / "runner" / "onnxgate-packages"
    version = re.search(r"^uv==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    wheels.mkdir()
    with zipfile.ZipFile(wheels / f"uv-{version[1]}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"uv-{version[1]}.data/scripts/uv", f"#!/bin/sh\ntouch '{marker}'\n")
    ran = use(installing, UNREACHABLE)

    shown = [(said.name, said.data.partition(":")[0]) for said in ran.annotations]
    expected = [("warning", CHANGED_WHEELS), ("error", "the packages of onnxgate could not be downloaded")]
    assert (expected, False) == (shown, marker.exists()), ran.log


@pytest.mark.index
def test_a_python_without_pip_can_install(installing: Engine, tmp_path: Path) -> None:
    """Environments of uv and some containers have no pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    ran = replace(installing, stubs={**installing.stubs, "python": lambda _: {"python-path": python}}).use(
        python_version="3"
    )

    assert ("success", "2") == (ran.steps["install"].outcome, ran.outputs["exit-code"]), ran.log


@pytest.mark.index
def test_wheels_are_downloaded_verified_and_reused(installing: Engine, tmp_path: Path) -> None:
    """The second run needs no index; a manipulated wheel is downloaded again."""
    first = installing.use()
    [python] = {first.steps["install"].outputs["python"]}
    wheels = Path(first.steps["setup"].outputs["wheels"])
    version = [python, "-I", "-m", "onnxgate", "--version"]
    assert subprocess.run(version, check=True, capture_output=True, cwd=tmp_path).stdout.startswith(b"onnxgate ")

    second = use(replace(installing, scratch=moved(wheels, tmp_path / "second")), UNREACHABLE)
    assert "success" == second.steps["install"].outcome, second.log

    third_scratch = moved(wheels, tmp_path / "third")
    for name in ("uv", "click"):
        [wheel] = (third_scratch / wheels.name).glob(f"{name}-*.whl")
        wheel.write_bytes(wheel.read_bytes() + b"x")
        third = use(replace(installing, scratch=third_scratch), {"PIP_REQUIRE_VIRTUALENV": "1"})
        shutil.rmtree(third_scratch / "step-0", ignore_errors=True)
        assert ("success", "warning") == (third.steps["install"].outcome, third.annotations[0].name), third.log
        third_scratch = moved(wheels, tmp_path / f"after-{name}")


def moved(wheels: Path, scratch: Path) -> Path:
    """Return the folder of a new runner with the restored wheels."""
    shutil.copytree(wheels, scratch / wheels.name)
    return scratch
