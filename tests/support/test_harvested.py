"""Harvests that are kept beside the shipped table."""

from __future__ import annotations

from pathlib import Path

import onnx

from onnxgate.support import harvest, limits, releases, table
from onnxgate.support.harvested import Harvests, Kept
from onnxgate.support.predict import predict
from onnxgate.support.typing import prepare

RELEASE = "1.31.1"
KEY = harvest.key("onnxruntime", RELEASE, "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f")
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
g (double[1, 1, 4, 4] x, double[1, 1, 2, 2] w) => (double[1, 1, 3, 3] y) { y = Conv(x, w) }
"""


def harvested() -> harvest.Harvest:
    """A release as it is harvested where the shipped table does not know it."""
    return harvest.Harvest(limits=limits.table().releases[RELEASE], table=harvest.only(table.shipped(), [RELEASE]))


def test_a_kept_harvest_predicts_as_the_shipped_table(tmp_path: Path) -> None:
    """Also for another process, which reads the file."""
    Harvests(tmp_path / "a folder").put(KEY, harvested())
    kept = Harvests(tmp_path / "a folder").get(KEY)
    prepared = prepare(onnx.parser.parse_model(MODEL))
    shipped = predict(prepared, releases.implementation(RELEASE), limits.table().releases[RELEASE])

    assert kept is not None
    (found,) = predict(prepared, kept.implementation, kept.limits).found
    assert [each.miss for each in shipped.found] == [found.miss]
    assert found.miss is not None
    assert found.miss.rule == "missing-kernel"


def test_what_is_put_is_there_at_once(tmp_path: Path) -> None:
    """In the place of what was there, and once: what is asked for twice is decoded once."""
    harvests = Harvests(tmp_path)
    older = harvest.Harvest(limits=limits.Limits(ir=1, opsets={}), table=None)

    assert Kept(older.limits, None) == harvests.put(KEY, older) == harvests.get(KEY)
    assert harvests.put(KEY, harvested()) is harvests.get(KEY)
    assert [f"{KEY}.json.z"] == [path.name for path in tmp_path.iterdir()]


def test_what_is_not_whole_is_not_there(tmp_path: Path) -> None:
    """So that it is harvested again."""
    harvests = Harvests(tmp_path)
    (tmp_path / f"{KEY}.json.z").write_bytes(harvest.encode_harvest(harvested())[:100])

    assert harvests.get(KEY) is None
    assert harvests.get("onnxruntime-1.0.0-abc") is None
