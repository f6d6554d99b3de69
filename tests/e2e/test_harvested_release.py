"""A release without shipped support data is noted, harvested when it runs, and then predicted like other releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onnxgate.core.cache_entries import add_checksum, verify_checksum
from onnxgate.support import harvest, limits, operators
from tests.e2e.test_isolated_nodes import MISSES, summarize, with_model
from tests.harness import altered_package
from tests.harness.repositories.user_repository import Repository, wait

pytestmark = pytest.mark.index

OLD, NEW = "onnxruntime 1.18.1", "onnxruntime 1.19.2"


def test_a_release_without_data_is_harvested_where_it_runs(small: Repository, own_cache: Path, tmp_path: Path) -> None:
    """After the run, it is predicted with the same table and limits as in the shipped data."""
    whole = with_model(small, MISSES).with_environment(ONNXGATE_CACHE_DIR=own_cache)
    lacking = whole.with_environment(PYTHONPATH=altered_package.without(tmp_path / "package", "1.19.2"))
    expected = whole.report("--static", status=1)

    before = lacking.report("--static", status=1)
    assert {("missing-kernel", (OLD,)), ("no-support-data", (NEW,))} == rules(before)
    run = lacking.report(status=1)
    assert {("missing-kernel", (OLD, NEW))} == rules(run)
    assert [True] * 3 == [confirmed for _, _, _, confirmed in summarize(run)]
    assert expected == lacking.report("--static", status=1)
    (kept,) = (own_cache / "support").iterdir()
    actual = harvest.decode_harvest(verify_checksum(kept.name.removesuffix(".json.z"), kept.read_bytes()) or b"")
    assert actual is not None
    assert (harvest.select_releases(operators.load_shipped_table(), ["1.19.2"]), limits.get_limits("1.19.2")) == (
        actual.table,
        actual.limits,
    )


def rules(report: dict[str, Any]) -> set[tuple[str, tuple[str, ...]]]:
    """Return the rules with findings, each with its runtimes."""
    return {(rule, tuple(runtimes)) for rule, _, runtimes, _ in summarize(report)}


def test_static_stages_harvest_nothing(small: Repository, tmp_path: Path) -> None:
    """Static stages have no environments, and harvested data of a different build are not used."""
    package = altered_package.without(tmp_path / "package", "1.19.2")
    lacking = with_model(small, MISSES, package).with_environment(ONNXGATE_CACHE_DIR=tmp_path / "a cache")
    folder = tmp_path / "a cache" / "support"
    folder.mkdir(parents=True)
    other = harvest.HarvestRecord(
        limits=limits.load_limit_table().releases["1.19.2"],
        table=harvest.select_releases(operators.load_shipped_table(), ["1.19.2"]),
    )
    key = harvest.make_harvest_key("onnxruntime", "1.19.2", "0" * 64)
    (folder / f"{key}.json.z").write_bytes(add_checksum(key, harvest.encode_harvest(other)))

    assert ("no-support-data", (NEW,)) in rules(lacking.report("--static", status=1))
    assert sorted(path.name for path in (tmp_path / "a cache").iterdir()) == ["static", "support"]
    assert len(list(folder.iterdir())) == 1


def test_static_stages_name_a_release_without_data(small: Repository, own_cache: Path, tmp_path: Path) -> None:
    """The last line of a static check names the release, also with `-q`, until a full check has harvested it."""
    package = altered_package.without(tmp_path / "package", "1.19.2")
    lacking = small.with_environment(ONNXGATE_CACHE_DIR=own_cache, PYTHONPATH=package)
    before = lacking.run("check", "--static", "-q").out
    lacking.run("check")
    after = lacking.run("check", "--static", "-q").out

    assert before.startswith(f"pass: 1 model on 2 runtimes: 1 note; not predicted: {NEW}; skipped stages: runtime, ")
    assert after.startswith("pass: 1 model on 2 runtimes; skipped stages: runtime, ")


def test_harvest_is_used_if_the_cache_is_read_only(small: Repository, own_cache: Path, tmp_path: Path) -> None:
    """If the cache is not writable, harvested data are still used, and the reason contains no local path."""
    package = altered_package.without(tmp_path / "package", "1.19.2")
    lacking = with_model(small, MISSES, package).with_environment(ONNXGATE_CACHE_DIR=own_cache)
    (own_cache / "support").touch()
    run = lacking.report(status=1)

    assert {("missing-kernel", (OLD, NEW))} == rules(run)
    assert ["support data could not be cached: File exists"] == [entry["reason"] for entry in run["skipped"]]


def test_two_gates_harvest_at_once(small: Repository, own_cache: Path, tmp_path: Path) -> None:
    """Both checks succeed with the same output, and one table is cached."""
    package = altered_package.without(tmp_path / "package", "1.19.2")
    lacking = with_model(small, MISSES, package).with_environment(ONNXGATE_CACHE_DIR=own_cache)
    with lacking.start("check", "--output", "json") as one, lacking.start("check", "--output", "json") as other:
        ended = [wait(each) for each in (one, other)]

    assert [1, 1] == [each.status for each in ended], [each.err for each in ended]
    assert ended[0].out == ended[1].out
    assert 1 == len(list((own_cache / "support").iterdir()))


def ready(environments: Path, pattern: str) -> list[Path]:
    """Return the complete environments of that name; other tests may build further environments at the same time."""
    states = sorted(environments.glob(f"{pattern}/ready.json"))
    return [path.parent / "attempts" / msgspec.json.decode(path.read_bytes())["attempt"] for path in states]


def test_custom_build_is_harvested(small: Repository, tmp_path: Path) -> None:
    """A custom build is harvested under a key of its libraries, whatever release number it reports."""
    small.run("check")
    built = min(ready(Path(small.environment["ONNXGATE_CACHE_DIR"]) / "environments", "onnxruntime-1.19.2-py*"))
    own = with_model(small, MISSES).with_environment(ONNXGATE_CACHE_DIR=tmp_path / "a cache")
    own.write("onnxgate.toml", f'[targets.own]\nruntime = "onnxruntime>=1.19"\npython = "{built.as_posix()}"\n')
    own.run("lock", "--offline")

    before = {rule for rule, _ in rules(own.report("--static"))}
    run = summarize(own.report(status=1))
    after = summarize(own.report("--static", status=1))
    assert {"no-support-data"} == before
    assert [("missing-kernel", True)] * 3 == [(rule, confirmed) for rule, _, _, confirmed in run]
    assert [each[:3] for each in run] == [each[:3] for each in after]
