"""The quickstart project runs on every locked release, and every output is compared with its source."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Make, Variables
from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import Repository

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.index, pytest.mark.torch]
QUICKSTART = ROOT / PROJECTS / "quickstart"
MODELS = ["models/classifier.onnx", "models/encoder.onnx"]


@pytest.fixture(scope="session")
def quickstart(command: Repository, toolchain: Path, create_once: Callable[[str, Make], Path]) -> Repository:
    """Return the project after one check, whose output is in `report.json`."""

    def make(folder: Path) -> None:
        repository = command.at(copy_tree(QUICKSTART, folder / "project"))
        commit(repository.folder)
        own = repository.with_environment(VIRTUAL_ENV=toolchain.parent.parent)
        result = own.run("check", "--no-cache", "--output", "json")  # other tests run the same models
        (folder / "report.json").write_text(result.out, encoding="utf-8")

    folder = create_once("quickstart", make)
    return command.at(folder / "project").with_environment(VIRTUAL_ENV=toolchain.parent.parent)


@pytest.fixture(scope="session")
def report(quickstart: Repository) -> dict[str, Any]:
    """Return the report of the first check."""
    decoded: dict[str, Any] = msgspec.json.decode((quickstart.folder.parent / "report.json").read_bytes())
    return decoded


@pytest.fixture(scope="session")
def locked() -> list[str]:
    """Return every runtime of the committed lock."""
    targets = tomllib.loads((QUICKSTART / "onnxgate.lock").read_text())["targets"].values()
    return sorted({f"onnxruntime {runtime['release']}" for target in targets for runtime in target["runtimes"]})


def test_passes(report: dict[str, Any]) -> None:
    """The check passes without findings, skipped parts or undecided results."""
    actual = {key: report[key] for key in ("verdict", "scope", "findings", "undecided", "skipped")}

    assert actual == {"verdict": "pass", "scope": "", "findings": [], "undecided": [], "skipped": []}
    assert report["stages"] == ["file", "lock", "support", "runtime", "parity", "export"]


def test_every_release_ran(report: dict[str, Any], locked: list[str]) -> None:
    """Both models run on each locked release (at least six) and are compared with their source there."""
    cells = {(cell["model"], cell["runtime"]): (cell["state"], cell["compared"]) for cell in report["cells"]}

    assert len(locked) >= 6
    assert cells == dict.fromkeys(itertools.product(MODELS, locked), ("pass", True))
    assert (report["counts"]["ran"], report["counts"]["compared"]) == (2 * len(locked), 2 * len(locked))


def test_every_comparison_is_measured(report: dict[str, Any], locked: list[str]) -> None:
    """Each release has a comparison with the source for each model, within its bound."""
    against_source = [
        measurement for measurement in report["measured"] if measurement["pair"].endswith(" against the source")
    ]
    measured = {(each["model"], each["pair"].removesuffix(" against the source")) for each in against_source}

    assert measured == set(itertools.product(MODELS, locked))
    assert [each for each in against_source if not each["value"] <= each["bound"]] == []


def test_environments_are_those_of_the_lock(report: dict[str, Any], locked: list[str], cache: Path) -> None:
    """For each locked release, an environment with this release exists."""
    names = {name.removeprefix("onnxruntime ") for name in locked}
    installed = {path.name.removesuffix(".dist-info").split("-")[1] for path in _installed(cache)}

    assert report["verdict"] == "pass"
    assert names <= installed


def _installed(cache: Path) -> list[Path]:
    return list(cache.glob("environments/*/attempts/*/lib/python*/site-packages/onnxruntime-*.dist-info"))


def test_warm(quickstart: Repository, cache: Path, cold: Variables) -> None:
    """A second check needs no index, builds no environment, and prints exactly the same report."""
    ready = {path: path.stat().st_mtime_ns for path in cache.glob("environments/*/ready.json")}
    warm = quickstart.with_environment(**{**cold, "ONNXGATE_CACHE_DIR": cache})
    result = warm.run("check", "--offline", "--no-cache", "--output", "json")

    assert (quickstart.folder.parent / "report.json").read_text(encoding="utf-8") == result.out
    assert {path: path.stat().st_mtime_ns for path in ready} == ready
