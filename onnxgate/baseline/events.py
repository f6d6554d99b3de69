"""What a CI system says of the run that it started. Strangers may have written it: commits are told by their form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxgate.baseline.commits import ID

LARGEST_BYTES = 32 * 1024 * 1024
_NO_BRANCH = frozenset(" ~^:?*[\\")


def read_event(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The event of a run of GitHub Actions; empty where there is none that can be read."""
    path = Path(environment.get("GITHUB_EVENT_PATH") or "/dev/null")
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_BYTES:
            return {}
        event = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def said(event: Mapping[str, Any], *keys: str) -> str:
    """The text at a path of keys; "" where there is something else, or nothing."""
    value: object = event
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def commit_in(text: str) -> str:
    """The commit that a text names in full; "" where it is anything else, or the zeroes that stand for none."""
    return text if ID.fullmatch(text) and text.strip("0") else ""


def branch_in(text: str) -> str:
    """The branch that a text names; "" where git would read more than a name in it."""
    strange = _NO_BRANCH & set(text) or any(ord(each) < 32 or ord(each) == 127 for each in text)
    parts = text.split("/")
    odd = "@{" in text or ".." in text or any(not part or part.startswith((".", "-")) for part in parts)
    return "" if strange or odd or text.endswith((".lock", ".")) else text
