"""Cached harvests of builds that the shipped table does not contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest

from onnxgate.core.cache_entries import add_checksum
from onnxgate.model.reading.view import ModelView
from onnxgate.support import harvest, limits, operators
from onnxgate.support.harvest import HarvestCache
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.type_inference import infer_model_types

RELEASE = "1.31.1"
SHA256 = next(source.sha256 for source in operators.load_shipped_table().sources if source.release == RELEASE)
KEY = harvest.make_harvest_key("onnxruntime", RELEASE, SHA256)
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (double[1, 1, 4, 4] x, double[1, 1, 2, 2] w) => (double[1, 1, 3, 3] y) { y = Conv(x, w) }
"""


def harvested() -> harvest.HarvestRecord:
    """Return the harvest of a release."""
    return harvest.HarvestRecord(
        limits=limits.load_limit_table().releases[RELEASE],
        table=harvest.select_releases(operators.load_shipped_table(), [RELEASE]),
    )


def test_stored_harvest_predicts_like_the_shipped_table(tmp_path: Path) -> None:
    """A stored harvest can be read by another process."""
    HarvestCache(tmp_path / "a folder").put(KEY, harvested())
    kept = HarvestCache(tmp_path / "a folder").get(KEY)
    prepared = infer_model_types(ModelView(onnx.parser.parse_model(MODEL)))
    shipped = predict(prepared, operators.get_implementation(RELEASE), limits.load_limit_table().releases[RELEASE])

    assert kept is not None
    (found,) = predict(prepared, kept.implementation, kept.limits).found
    assert [each.miss for each in shipped.found] == [found.miss]
    assert found.miss is not None
    assert found.miss.rule == "missing-kernel"


def test_new_harvest_replaces_the_old_one(tmp_path: Path) -> None:
    """A new harvest replaces the old one, and is decoded once."""
    harvests = HarvestCache(tmp_path)
    older = harvest.HarvestRecord(limits=limits.Limits(ir=1, opsets={}), table=None)

    put = harvests.put(KEY, older)
    assert (older.limits, None) == (put.limits, put.implementation)
    assert put == harvests.get(KEY) == HarvestCache(tmp_path).get(KEY)
    assert harvests.put(KEY, harvested()) is harvests.get(KEY)
    assert [f"{KEY}.json.z"] == [path.name for path in tmp_path.iterdir()]


def test_truncated_harvest_is_ignored(tmp_path: Path) -> None:
    """A truncated or missing harvest is ignored, so that the build is harvested again."""
    harvests = HarvestCache(tmp_path)
    (tmp_path / f"{KEY}.json.z").write_bytes(harvest.encode_harvest(harvested())[:100])

    assert harvests.get(KEY) is None
    assert harvests.get("onnxruntime-1.0.0-abc") is None


def test_harvest_of_another_build_is_ignored(tmp_path: Path) -> None:
    """A harvest whose build does not match the file name is ignored."""
    other = harvest.make_harvest_key("onnxruntime", RELEASE, "0" * 64)
    HarvestCache(tmp_path).put(other, harvested())

    assert HarvestCache(tmp_path).get(other) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda said: said["sources"].clear(), id="of-nothing"),
        pytest.param(lambda said: said["sources"].append(said["sources"][0]), id="of-two"),
        pytest.param(lambda said: said["sets"].clear(), id="sets-of-types"),
        pytest.param(lambda said: said.update(sets=[[9999]]), id="types"),
        pytest.param(lambda said: said["operators"]["ai.onnx"].update(Conv=[1, 2]), id="rows"),
    ],
)
def test_inconsistent_harvest_is_ignored(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    """An inconsistent harvest is ignored; otherwise every check would fail until the cache is cleared."""
    decoded = msgspec.json.decode(msgspec.json.encode(harvested()))
    change(decoded["table"])
    wrong = msgspec.json.decode(msgspec.json.encode(decoded), type=harvest.HarvestRecord)
    (tmp_path / f"{KEY}.json.z").write_bytes(add_checksum(KEY, harvest.encode_harvest(wrong)))

    assert HarvestCache(tmp_path).get(KEY) is None


def test_unwritable_harvest_is_kept_in_memory(tmp_path: Path) -> None:
    """If the cache folder cannot be written, the harvest is still available in the same process."""
    (tmp_path / "a file").touch()
    harvests = HarvestCache(tmp_path / "a file")
    with pytest.raises(OSError, match="a file"):
        harvests.put(KEY, harvested())

    assert harvests.get(KEY) is not None
