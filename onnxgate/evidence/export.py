"""Subjects of the export stage's rules."""

from __future__ import annotations

import msgspec

from onnxgate.findings import Place
from onnxgate.runtimes.jobs import Failure


class Reexport(msgspec.Struct, frozen=True, kw_only=True):
    """One model, exported again from its source or by its command."""

    model: str
    place: Place  # the source's line where it is known, else the model's entry in the config
    source: str  # "export/classifier.py:build", or the command's words
    failure: Failure | None = None
    timed_out_s: float = 0.0
    crashed: str = ""
    opsets_asked: dict[str, int] = {}
    opsets_written: dict[str, int] = {}
    # What differs between the committed and the fresh export, normalised; the first few, in words.
    differences: tuple[str, ...] = ()
    # "IR version 8, was 10": no difference of the model; rules about the committed file judge its own.
    restamped: str = ""
    log: str = ""


class ToolchainState(msgspec.Struct, frozen=True, kw_only=True):
    """What the toolchain is against what the lock says: package -> (locked, found); found is "" where it is absent."""

    place: Place
    drift: dict[str, tuple[str, str]]
