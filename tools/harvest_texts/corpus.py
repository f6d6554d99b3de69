"""The corpus: one file per emitter and release, each text where it was first seen."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "texts"
LIMIT = 900
"""Characters of a text that are kept, of its beginning and of its end."""
_PLACE = re.compile(
    r"/onnxruntime_src/\S*?(\w+\.(?:cc|h)):\d+ .*?\)(?: const)?"
    r"(?:::<lambda\(\S*\)>)?(?: \[with [^\]]*\])? (?=[A-Z\[a-z!])"
)
_NUMBER = re.compile(r"(\w+\.(?:cc|h|cpp|hpp|py)\S*?):\d+")
_FRAME = re.compile(r'  File "/usr/(?![^\n]*external_data)[^\n]*\n(?:    [^\n]*\n)*')
"""A place in an installed package, with its source line; where external data is read, it says so."""
_ERROR = re.compile(r"Error\b|Could not|violated")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def normal(text: str, folder: Path) -> str:
    """The text without what differs between two machines; a long one without its middle."""
    said = _ADDRESS.sub("0x7f0000000000", text.replace(str(folder.resolve()), "/models").strip("\n"))
    said = re.sub(r"/\S*?/(?=lib/python3\.\d+/|bin/python|python3\.\d+/)", "/usr/", said)
    said = re.sub(r"/tmp/[\w.-]+", "/scratch", _FRAME.sub("", said))
    return said if len(said) <= 2 * LIMIT else _shortened(said)


def _shortened(text: str) -> str:
    """The beginning, the end, and the errors between them."""
    between = [line for line in text[LIMIT:-LIMIT].split("\n")[1:-1] if _ERROR.search(line)]
    return "\n".join([text[:LIMIT], "[…]", *(line[:300] for line in between[:8]), "[…]", text[-LIMIT:]])


def essence(text: str) -> str:
    """What makes a text worth being kept: not the place in the runtime's code."""
    return _NUMBER.sub(r"\1", _PLACE.sub(r"{\1} ", text))


def write(emitter: str, release: str, texts: Mapping[str, tuple[str, str]], folder: Path = FOLDER) -> Path:
    """Write case -> (entry, text); what an earlier release says in the same words is only named."""
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
    """Files of older releases beside one."""
    files = [path for path in target.parent.glob("*.json") if _order(path) < _order(target)]
    return sorted(files, key=_order)


def _order(path: Path) -> tuple[Version, str]:
    try:
        return Version(path.stem), ""
    except InvalidVersion:
        return Version("0"), path.stem
