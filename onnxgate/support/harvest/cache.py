"""Harvests that are kept: of releases that the shipped table does not know, and of builds of one's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onnxgate.core.files import replace_atomically
from onnxgate.support.harvest.table_builder import HarvestRecord, decode_harvest, encode_harvest
from onnxgate.support.harvest.table_builder import make_harvest_key as named
from onnxgate.support.tables.limits import Limits
from onnxgate.support.tables.operators import Implementation, build_implementations


@dataclass(frozen=True, slots=True)
class BuildSupport:
    """What is known of one build."""

    limits: Limits
    implementation: Implementation | None  # None where it does not say


@dataclass(slots=True)
class HarvestCache:
    """One file for each build below a folder, named by `harvest.key`. What is damaged is not there."""

    folder: Path
    _known: dict[str, BuildSupport] = field(default_factory=dict)

    def get(self, key: str) -> BuildSupport | None:
        """What is kept of a build."""
        if key not in self._known:
            try:
                found = decode_harvest(self._path(key).read_bytes())
            except OSError:
                return None
            kept = _validate_harvest(found, key) if found is not None else None
            if kept is None:
                return None
            self._known[key] = kept
        return self._known[key]

    def put(self, key: str, harvest: HarvestRecord) -> BuildSupport:
        """Keep it, at once or not at all: others may read and write the same file.

        Raises:
            OSError: it cannot be written; in this process it is kept all the same.
        """
        self._known[key] = _make_build_support(harvest)
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as scratch:
            scratch.write_bytes(encode_harvest(harvest))
        return self._known[key]

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json.z"


def _validate_harvest(harvest: HarvestRecord, key: str) -> BuildSupport | None:
    """What a harvest says; None where it is not of the one build that its file is named by, or cannot be read."""
    sources = harvest.table.sources if harvest.table is not None else ()
    builds = [named("", source.release, source.sha256) for source in sources]
    if harvest.table is not None and [key.endswith(build) for build in builds] != [True]:
        return None
    try:
        kept = _make_build_support(harvest)
        implementation = kept.implementation
        every = [implementation.operators(domain) for domain in implementation.domains()] if implementation else []
    except (IndexError, msgspec.MsgspecError):
        return None
    return kept if all(every) else None


def _make_build_support(harvest: HarvestRecord) -> BuildSupport:
    if harvest.table is None:
        return BuildSupport(harvest.limits, None)
    (source,) = harvest.table.sources
    return BuildSupport(
        harvest.limits, build_implementations(harvest.table, {source.release: harvest.limits.opsets})[source.release]
    )
