"""What each release of ONNX Runtime takes of a model, whatever its operators are.

Source: measured by `tools/harvest_support.py`, which loads the models of `support/probes` in each official wheel.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec
from packaging.version import Version

from onnxgate.model.reading.external_data import DataLayout


class ExternalData(msgspec.Struct, frozen=True):
    """Where a release takes external data from, beside the model's own folder. False: the model is refused."""

    outside: bool  # a relative path that leads out of the folder: `../weights.bin`
    link: bool  # a symbolic link in the folder to a file outside of it
    linked_model: bool  # model and data are both symbolic links, into one folder elsewhere
    absolute: bool  # an absolute path, be it into the folder


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one release takes at most. A domain that is not in `opsets` may be imported at any version."""

    ir: int
    opsets: dict[str, int]
    dev_opsets: dict[str, int] = {}  # newer ones, taken with ALLOW_RELEASED_ONNX_OPSET_ONLY=0; where there are any
    external_data: ExternalData | None = None  # None: not measured


class LimitTable(msgspec.Struct, frozen=True):
    """All measured releases of one engine, in ascending order."""

    engine: str
    releases: dict[str, Limits]


@functools.cache
def load_limit_table() -> LimitTable:
    """The shipped table."""
    data = Path(__file__).resolve().parents[1] / "data" / "onnxruntime-limits.json"
    return msgspec.json.decode(data.read_bytes(), type=LimitTable)


def get_limits(release: str) -> Limits | None:
    """The limits of one exact release, None where it was not measured."""
    return load_limit_table().releases.get(str(Version(release).public))


def accepts_versions(limits: Limits, ir_version: int, opsets: dict[str, int]) -> bool:
    """Whether a release takes these stamps."""
    if ir_version > limits.ir:
        return False
    return all(version <= limits.opsets.get(domain, version) for domain, version in opsets.items())


def find_first_release_for_ir(ir_version: int) -> str:
    """The first release from which on every one takes the IR version; "" where none does."""
    return _find_first_release([ir_version <= limits.ir for limits in load_limit_table().releases.values()])


def find_first_release_for_opset(domain: str, version: int) -> str:
    """The first release from which on every one takes the opset; "" where none does."""
    return _find_first_release(
        [version <= limits.opsets.get(domain, version) for limits in load_limit_table().releases.values()]
    )


def _find_first_release(taken: list[bool]) -> str:
    releases = list(load_limit_table().releases)
    return releases[0] if all(taken) else find_support_span(releases, taken)[0]


def find_support_span(releases: Sequence[str], works: Sequence[bool]) -> tuple[str, str]:
    """The first release from which on it works in all, and the last one up to which it did, given them ascending.

    "" where there is none, and both where it works everywhere.
    """
    if all(works):
        return "", ""
    after = list(reversed(works)).index(False)
    before = list(works).index(False)
    return releases[-after] if after else "", releases[before - 1] if before else ""


def supports_layout(known: Limits, layout: DataLayout) -> bool | None:
    """Whether a release reads data that lie so; None where that was not measured."""
    if layout == "inside":
        return True
    if known.external_data is None:
        return None
    return bool(getattr(known.external_data, layout.replace("-", "_")))


def find_layout_span(layout: DataLayout) -> tuple[str, str]:
    """From which measured release on data that lie so are read, and up to which one they were."""
    measured = {
        name: answer
        for name, row in load_limit_table().releases.items()
        if (answer := supports_layout(row, layout)) is not None
    }
    return find_support_span(list(measured), list(measured.values()))
