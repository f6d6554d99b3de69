"""Versions of the interpreter and of its packages."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any, Callable, Dict


def probe_versions(job: Dict[str, Any], phase: Callable[[str], None]) -> Dict[str, Any]:
    """Return the versions of the job's packages; those that are not installed are left out."""
    found = {name: _installed_version(name) for name in job["packages"]}
    return {
        "kind": "probe",
        "python": platform.python_version(),
        "packages": {name: version for name, version in found.items() if version},
    }


def _installed_version(name: str) -> str:
    try:
        return metadata.version(name) or ""
    except metadata.PackageNotFoundError:
        return ""
