"""The corpus has one file per emitter and release. Each text is stored for the first release that prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "texts"
LIMIT = 900
"""Number of characters that are stored from the beginning and from the end of a long text."""
_PLACE = re.compile(
    r"/onnxruntime_src/\S*?(\w+\.(?:cc|h)):\d+ .*?\)(?: const)?"
    r"(?:::<lambda\(\S*\)>)?(?: \[with [^\]]*\])? (?=[A-Z\[a-z!])"
)
_NUMBER = re.compile(r"(\w+\.(?:cc|h|cpp|hpp|py)\S*?):\d+")
_FRAME = re.compile(r'  File "/usr/(?![^\n]*external_data)[^\n]*\n(?:    [^\n]*\n)*')
"""A traceback entry in an installed package, unless it is about external data; such entries are kept."""
_ERROR = re.compile(r"Error\b|Could not|violated")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def normal(text: str, folder: Path) -> str:
    """Return the text without machine-specific parts; if it is long, the middle is removed."""
    actual = _ADDRESS.sub("0x7f0000000000", text.replace(str(folder.resolve()), "/models").strip("\n"))
    actual = re.sub(r"/\S*?/(?=lib/python3\.\d+/|bin/python|python3\.\d+/)", "/usr/", actual)
    actual = re.sub(r"/tmp/[\w.-]+", "/scratch", _FRAME.sub("", actual))
    return actual if len(actual) <= 2 * LIMIT else _shortened(actual)


def _shortened(text: str) -> str:
    """Return the beginning and the end of the text, and the error lines between them."""
    between = [line for line in text[LIMIT:-LIMIT].split("\n")[1:-1] if _ERROR.search(line)]
    return "\n".join([text[:LIMIT], "[…]", *(line[:300] for line in between[:8]), "[…]", text[-LIMIT:]])


def essence(text: str) -> str:
    """Return a key for comparing texts, without source positions."""
    return _NUMBER.sub(r"\1", _PLACE.sub(r"{\1} ", text))


def write(emitter: str, release: str, texts: Mapping[str, tuple[str, str]], folder: Path = FOLDER) -> Path:
    """Write the catalogue entry and the text of each case.

    For a text that an earlier release prints, write only a reference to that release.
    """
    target = folder / emitter / f"{release}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    seen: dict[str, dict[str, str]] = {}
    for path in earlier(target):
        for case, each in json.loads(path.read_bytes())["texts"].items():
            seen.setdefault(case, {}).setdefault(essence(each["text"]), path.stem)
    new: dict[str, Any] = {}
    same: dict[str, list[str]] = {}
    for case, (entry, text) in sorted(texts.items()):
        known = seen.get(case, {}).get(essence(text))
        if known:
            same.setdefault(known, []).append(case)
        else:
            new[case] = {"entry": entry, "text": text}
    content = {"emitter": emitter, "release": release, "texts": new, "as_in": same}
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def earlier(target: Path) -> list[Path]:
    """Return the files of older releases in the same folder."""
    files = [path for path in target.parent.glob("*.json") if _order(path) < _order(target)]
    return sorted(files, key=_order)


def _order(path: Path) -> tuple[Version, str]:
    try:
        return Version(path.stem), ""
    except InvalidVersion:
        return Version("0"), path.stem
