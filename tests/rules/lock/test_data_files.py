"""New external data files, and the total size of a model."""

from __future__ import annotations

import msgspec
import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.facts import ExternalFile, ModelFacts
from onnxgate.rules.lock.data_file_added import find_new_data_files
from onnxgate.rules.lock.size_grew import total_size_bytes

FACTS = ModelFacts("models/m.onnx", "", 10, 8, {}, "", (), (), {}, ())


def facts(locations: str, path: str = "models/m.onnx", unread: str = "") -> ModelFacts:
    """Return a model with external data files of 5 bytes."""
    files = tuple(ExternalFile(location, 5, "") for location in locations.split())
    return msgspec.structs.replace(FACTS, path=path, external=files, unread=tuple(unread.split()))


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (facts(""), facts("w.bin"), ["w.bin"]),
        (facts("w.bin"), facts(""), []),
        (facts("w.bin"), facts("./w.bin"), []),
        (facts("w.bin"), facts("data/w.bin"), ["data/w.bin"]),
        (facts("a b"), facts("b c d"), ["c", "d"]),
        (facts("", unread="w.bin"), facts("w.bin"), []),  # the file was already required, but missing
        (facts(""), facts("", unread="w.bin"), ["w.bin"]),
        (facts("old.onnx.data", "x/old.onnx"), facts("m.onnx.data"), []),
        (facts("old.data", "old.onnx"), facts("m.data"), []),
        (facts("d/old.onnx_data", "old.onnx"), facts("d/m.onnx_data"), []),
        (facts("older.data", "old.onnx"), facts("mer.data"), ["mer.data"]),
        (facts("w.bin", "old.onnx"), facts("v.bin"), ["v.bin"]),
    ],
)
def test_new_data_files(before: ModelFacts, after: ModelFacts, new: list[str]) -> None:
    """A data file that is renamed with its model is not new."""
    change = ModelChange(before=before, after=after, place=Place("m.onnx"), baseline="at `main`")

    assert new == find_new_data_files(change)


def test_missing_data_files_since_the_lock() -> None:
    """The lock does not list missing files, which only weights that no node uses may have."""
    before, after = facts(""), facts("w.bin", unread="gone.bin")
    change = ModelChange(before=before, after=after, place=Place("m.onnx"), baseline="in the lock", from_lock=True)

    assert find_new_data_files(change) == ["w.bin"]


def test_size() -> None:
    """The size includes all external data and is unknown if some is missing."""
    assert [20, None] == [total_size_bytes(facts("a b")), total_size_bytes(facts("a b", unread="c"))]
