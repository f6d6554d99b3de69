"""Caches cannot lie: with any changed byte, each cache gives the right answer or none, and the damage is named."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from onnxgate.core import cache_entries, files
from onnxgate.core.cache_entries import take_damaged_entries
from onnxgate.core.findings import STATIC_STAGES
from onnxgate.core.jobs import Completed, RunResult
from onnxgate.gate import outcome_cache, pipeline
from onnxgate.gate.execution.stable_exports import StableExport
from onnxgate.gate.request import GateRequest, StaticSettings
from onnxgate.gate.sharding import plan
from onnxgate.gate.static_cache import FileDigestCache, StaticResultCache
from onnxgate.support import harvest, limits
from onnxgate.support.harvest import HarvestCache
from tests.gate.test_result_cache import Machine, locked_runtime
from tests.harness.models import parse, write
from tests.harness.sharded_outcomes import make_project, request_of

KEY = "1" * 64
NEWER = '<ir_version: 8, opset_import: ["" : 23]>\n'
IDENTITY = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


@pytest.fixture(autouse=True)
def no_damages() -> Iterator[None]:
    """Forget the damages of other tests."""
    take_damaged_entries()
    yield
    take_damaged_entries()


def flipped(content: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield the content with one changed byte, for each position."""
    for at in range(0, len(content), step):
        yield content[:at] + bytes([content[at] ^ (1 << (at % 8))]) + content[at + 1 :]


@pytest.fixture
def request_(tmp_path: Path) -> GateRequest:
    """Return a static check with errors, and a cache."""
    project = make_project(tmp_path / "project")
    request = request_of(project, frozenset(STATIC_STAGES))
    write(request.models[0].absolute, parse(IDENTITY, NEWER))
    return replace(request, static=StaticSettings(folder=lambda: tmp_path / "static"))


def test_static_results(request_: GateRequest, tmp_path: Path) -> None:
    """Each entry that is still found is the original one."""
    pipeline.run(request_)
    (path,) = (tmp_path / "static").glob("*.msgpack")
    content, folder = path.read_bytes(), request_.project.folder
    keys = list(msgspec.msgpack.decode(content))
    before = {key: StaticResultCache(path.parent, folder).find(key, object) for key in keys}
    assert None not in before.values()

    for changed in flipped(content, step=5):
        path.write_bytes(changed)
        cache = StaticResultCache(path.parent, folder)
        found = {key: cache.find(key, object) for key in keys}
        lost = [key for key in keys if found[key] is None]
        assert lost
        assert found == before | dict.fromkeys(lost)


def test_static_verdict(request_: GateRequest, tmp_path: Path) -> None:
    """With a damaged entry, the findings are those of a check without a cache, and the next check is whole again."""
    first = pipeline.run(request_)
    (path,) = (tmp_path / "static").glob("*.msgpack")
    content = path.read_bytes()
    assert first.findings

    for changed in flipped(content, step=len(content) // 40):
        path.write_bytes(changed)
        take_damaged_entries()
        assert pipeline.run(request_).findings == first.findings
        damaged = take_damaged_entries()
        assert pipeline.run(request_).findings == first.findings
        assert all(str(path) in entry for entry in damaged)
        assert take_damaged_entries() == []


def test_file_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest of a large file is the right one or unknown, because it decides whether the file is the locked one."""
    monkeypatch.setattr(files, "_digests", {})
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(2 * 2**20))
    hour_ago = time.time() - 3600
    os.utime(file, (hour_ago, hour_ago))
    monkeypatch.setattr(files, "is_settled", lambda *_: True)
    digest = files.sha256_of(file)
    FileDigestCache(tmp_path / "kept").keep([file])
    stored = tmp_path / "kept" / "digests.json"
    content = stored.read_bytes()

    for changed in (content, *flipped(content)):
        stored.write_bytes(changed)
        files._digests.clear()
        FileDigestCache(tmp_path / "kept").recall([file], tmp_path)
        assert files.known_digest(file.stat()) == (digest if changed == content else None)
    assert take_damaged_entries() == [str(stored)]


@pytest.mark.parametrize("name", ["entry.json", "0/0.npy"])
def test_run_results(tmp_path: Path, name: str) -> None:
    """A cached run with a changed record or output is not used."""
    machine = Machine(tmp_path)
    machine.store_result()
    content = (machine.entry() / name).read_bytes()

    for changed in flipped(content, step=3):
        (machine.entry() / name).write_bytes(changed)
        assert machine.store().find(locked_runtime(), machine.job()) is None
        assert take_damaged_entries()
        machine.store_result()
    actual = machine.store().find(locked_runtime(), machine.job())
    assert isinstance(actual, Completed)
    assert isinstance(actual.result, RunResult)
    assert np.load(str(actual.result.cases[0].outputs[0])).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_outcomes(tmp_path: Path) -> None:
    """An outcome or stable export with a changed byte, or under the name of another one, is not used."""
    export = StableExport(KEY, 0, {"m.onnx": "2" * 64})
    file = tmp_path / KEY / outcome_cache.ENTRY_FILE
    outcome_cache.write_entry(tmp_path / KEY, export)
    content = file.read_bytes()

    for changed in flipped(content):
        file.write_bytes(changed)
        assert outcome_cache.read_entry(tmp_path / KEY, StableExport) is None
        assert take_damaged_entries() == [str(tmp_path / KEY)]
        outcome_cache.write_entry(tmp_path / KEY, export)
    assert outcome_cache.read_entry(tmp_path / KEY, StableExport) == export
    (tmp_path / KEY).rename(tmp_path / ("3" * 64))
    assert outcome_cache.read_entry(tmp_path / ("3" * 64), StableExport) is None


def test_harvests(tmp_path: Path) -> None:
    """Support data of a build with a changed byte, or of another build, is not used."""
    record = harvest.HarvestRecord(limits=limits.load_limit_table().releases["1.31.1"], table=None)
    HarvestCache(tmp_path).put("a", record)
    file = tmp_path / "a.json.z"
    content = file.read_bytes()

    for changed in flipped(content):
        file.write_bytes(changed)
        assert HarvestCache(tmp_path).get("a") is None
        assert take_damaged_entries() == [str(file)]
    (tmp_path / "b.json.z").write_bytes(content)
    assert HarvestCache(tmp_path).get("b") is None


def test_costs(tmp_path: Path) -> None:
    """Measured costs with a changed byte are not used."""
    plan.save_costs(tmp_path, KEY, {"onnxruntime 1.18.1": 2.5})
    content = (tmp_path / KEY).read_bytes()

    for changed in flipped(content):
        (tmp_path / KEY).write_bytes(changed)
        assert plan.load_costs(tmp_path, KEY) == {}
        assert take_damaged_entries() == [str(tmp_path / KEY)]


def replace_with_pipe(file: Path) -> None:
    """Put a named pipe in place of a file; reading it would block."""
    file.unlink()
    os.mkfifo(file)


def replace_with_folder(file: Path) -> None:
    """Put a folder in place of a file."""
    file.unlink()
    file.mkdir()


def replace_with_link(file: Path) -> None:
    """Put a dangling link in place of a file."""
    file.unlink()
    file.symlink_to("nowhere")


def enlarge(file: Path) -> None:
    """Make a sparse file that does not fit into memory."""
    os.truncate(file, 2**40)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
@pytest.mark.parametrize("harm", [replace_with_pipe, replace_with_folder, replace_with_link, enlarge])
def test_files_of_other_kinds(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """A cache file that is not a regular file of a plausible size is not read, and the next value replaces it."""
    machine = Machine(tmp_path)
    harvest_record = harvest.HarvestRecord(limits=limits.load_limit_table().releases["1.31.1"], table=None)
    export = StableExport(KEY, 0, {"m.onnx": "2" * 64})

    for _ in range(2):
        static = StaticResultCache(tmp_path, tmp_path)
        static.keep(KEY, export)
        static.save()
        machine.store_result()
        outcome_cache.write_entry(tmp_path / KEY, export)
        HarvestCache(tmp_path).put("a", harvest_record)
        plan.save_costs(tmp_path, "2" * 64, {"onnxruntime 1.18.1": 2.5})
        (stored,) = tmp_path.glob("*.msgpack")

        assert StaticResultCache(tmp_path, tmp_path).find(KEY, StableExport) == export
        assert machine.store().find(locked_runtime(), machine.job()) is not None
        assert outcome_cache.read_entry(tmp_path / KEY, StableExport) == export
        assert HarvestCache(tmp_path).get("a") is not None
        assert plan.load_costs(tmp_path, "2" * 64)

        for file in (stored, tmp_path / KEY / outcome_cache.ENTRY_FILE, tmp_path / "a.json.z", tmp_path / ("2" * 64)):
            harm(file)
        assert StaticResultCache(tmp_path, tmp_path).find(KEY, StableExport) is None
        assert outcome_cache.read_entry(tmp_path / KEY, StableExport) is None
        assert HarvestCache(tmp_path).get("a") is None
        assert plan.load_costs(tmp_path, "2" * 64) == {}
        for name in ("entry.json", "0/0.npy"):
            machine.store_result()
            harm(machine.entry() / name)
            assert machine.store().find(locked_runtime(), machine.job()) is None


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
@pytest.mark.parametrize("harm", [replace_with_pipe, replace_with_folder, replace_with_link, enlarge])
def test_digests_of_other_kinds(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Stored digests that are not a regular file are unknown."""
    stored = tmp_path / "digests.json"
    stored.touch()
    harm(stored)
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(2 * 2**20))
    FileDigestCache(tmp_path).recall([file], tmp_path)

    assert take_damaged_entries() == ([] if harm is replace_with_link else [str(stored)])


@pytest.mark.parametrize(
    "change",
    [
        {"key": KEY, "seed": 0, "written": {}, "unknown": 1},
        {"key": KEY, "seed": 0},
        {"key": KEY, "seed": "0", "written": {}},
        {"seed": 0, "key": KEY, "written": {}},
        {"key": KEY, "seed": 0, "written": []},
    ],
)
def test_unexpected_fields(tmp_path: Path, change: dict[str, object]) -> None:
    """An entry with a valid checksum, but with unknown, missing, reordered or mistyped fields, is not used."""
    entry = cache_entries.add_checksum(KEY, msgspec.msgpack.encode(change))
    outcome_cache.write_entry(tmp_path / KEY, StableExport(KEY, 0, {}))
    (tmp_path / KEY / outcome_cache.ENTRY_FILE).write_bytes(entry)

    assert outcome_cache.read_entry(tmp_path / KEY, StableExport) is None


class Counts(msgspec.Struct, frozen=True):
    """A value with defaults, which a decoder uses for missing fields and instead of unknown ones."""

    errors: int = 0
    runtimes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    "content",
    [b"{}", b'{"errors":1}', b'{"errors":1,"runtimes":[],"mistakes":2}', b'{"errors":1,"errors":0,"runtimes":[]}'],
)
def test_fields_with_defaults(content: bytes) -> None:
    """A default does not stand for a field that was written; a missing error would be a pass."""
    entry = cache_entries.encode_entry(KEY, Counts(1, (2,)), Counts, msgspec.json)
    assert entry is not None

    assert cache_entries.decode_entry(KEY, entry, Counts, msgspec.json) == Counts(1, (2,))
    assert cache_entries.decode_entry(KEY, cache_entries.add_checksum(KEY, content), Counts, msgspec.json) is None


def test_values_that_change_when_decoded_are_not_kept() -> None:
    """An integer in a field for numbers would be decoded as another value each time."""
    assert cache_entries.encode_entry(KEY, {"x": 1}, dict[str, float]) is None
