"""The user's own code at work: where it runs, and what becomes of what it raises."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator

from . import seeding
from .failure import describe, flush
from .source import folders_of, split, surroundings


@contextlib.contextmanager
def heard(job: Dict[str, Any], result: Dict[str, Any]) -> Iterator[None]:
    """Inside, imports and paths are the source's; whatever is raised there is the result's failure."""
    file, _ = split(job["source"])
    try:
        with surroundings(file, job["folder"]), seeding.on_import():
            yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; what it says is the result
        result["failure"] = describe(error, folders_of(job))
    flush()
