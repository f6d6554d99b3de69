"""What each release of ONNX Runtime takes of a model, whatever its operators are.

Source: measured by `tools/harvest_support.py`, which loads the models of `support/probes` in each official wheel.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec
from packaging.version import Version

from onnxgate.support.spans import span


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
def table() -> LimitTable:
    """The shipped table."""
    data = Path(__file__).resolve().parents[1] / "data" / "onnxruntime-limits.json"
    return msgspec.json.decode(data.read_bytes(), type=LimitTable)


def limits_of(release: str) -> Limits | None:
    """The limits of one exact release, None where it was not measured."""
    return table().releases.get(str(Version(release).public))


def loads(limits: Limits, ir_version: int, opsets: dict[str, int]) -> bool:
    """Whether a release takes these stamps."""
    if ir_version > limits.ir:
        return False
    return all(version <= limits.opsets.get(domain, version) for domain, version in opsets.items())


def ir_works_since(ir_version: int) -> str:
    """The first release from which on every one takes the IR version; "" where none does."""
    return _since([ir_version <= limits.ir for limits in table().releases.values()])


def opset_works_since(domain: str, version: int) -> str:
    """The first release from which on every one takes the opset; "" where none does."""
    return _since([version <= limits.opsets.get(domain, version) for limits in table().releases.values()])


def _since(taken: list[bool]) -> str:
    releases = list(table().releases)
    return releases[0] if all(taken) else span(releases, taken)[0]
