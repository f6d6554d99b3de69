"""Cache of harvests: of releases that the shipped table does not contain, and of custom builds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from onnxgate.core.files import replace_atomically
from onnxgate.support.harvest.table_builder import HarvestRecord, decode_harvest, encode_harvest, make_harvest_key
from onnxgate.support.tables.limits import Limits
from onnxgate.support.tables.operators import Implementation, build_implementations


@dataclass(frozen=True, slots=True)
class BuildSupport:
    """Limits and implementation of one build."""

    limits: Limits
    implementation: Implementation | None  # None if the build has no kernel registry to read


@dataclass(slots=True)
class HarvestCache:
    """One file for each build in a folder, named by `make_harvest_key`. Damaged files are ignored."""

    folder: Path
    _known: dict[str, BuildSupport] = field(default_factory=dict)

    def get(self, key: str) -> BuildSupport | None:
        """Return a build's support, None if it is not cached."""
        if key not in self._known:
            try:
                harvest = decode_harvest(self._path(key).read_bytes())
            except OSError:
                return None
            support = _validate_harvest(harvest, key) if harvest is not None else None
            if support is None:
                return None
            self._known[key] = support
        return self._known[key]

    def put(self, key: str, harvest: HarvestRecord) -> BuildSupport:
        """Store a harvest atomically: other processes may read and write the same file.

        Raises:
            OSError: it cannot be written; this process can still get it.
        """
        self._known[key] = _make_build_support(harvest)
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_atomically(path) as part:
            part.write_bytes(encode_harvest(harvest))
        return self._known[key]

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json.z"


def _validate_harvest(harvest: HarvestRecord, key: str) -> BuildSupport | None:
    """Return a harvest's support; None if it is damaged, or of another build than its file's name."""
    sources = harvest.table.sources if harvest.table is not None else ()
    builds = [make_harvest_key("", source.release, source.sha256) for source in sources]
    if harvest.table is not None and [key.endswith(build) for build in builds] != [True]:
        return None
    try:
        support = _make_build_support(harvest)
        implementation = support.implementation
        every = [implementation.operators(domain) for domain in implementation.domains()] if implementation else []
    except (IndexError, msgspec.MsgspecError):
        return None
    return support if all(every) else None


def _make_build_support(harvest: HarvestRecord) -> BuildSupport:
    if harvest.table is None:
        return BuildSupport(harvest.limits, None)
    (source,) = harvest.table.sources
    return BuildSupport(
        harvest.limits, build_implementations(harvest.table, {source.release: harvest.limits.opsets})[source.release]
    )
