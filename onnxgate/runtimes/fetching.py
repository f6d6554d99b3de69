"""Where the index has a wheel, as uv says it, and what opens it there."""

from __future__ import annotations

import http.client
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from onnxgate.config.toml import loads
from onnxgate.lock.types import LockedPackage
from onnxgate.runtimes.commands import Commands
from onnxgate.scratch import scratch_folder

ASK_TIMEOUT_S = 120
OPEN_TIMEOUT_S = 30
CHUNK_BYTES = 2**20
_ASK = (
    *("pip", "compile", "--quiet", "--no-deps", "--no-header", "--only-binary", ":all:"),
    *("--universal", "--format", "pylock.toml", "--python", sys.executable),
)


class Download:
    """A wheel at its address; reading it ends when the gate is ended."""

    def __init__(self, url: str, commands: Commands) -> None:
        self._url = url
        self._commands = commands

    def chunks(self) -> Iterator[bytes]:
        """Its bytes.

        Raises:
            OSError: it cannot be had, or not whole.
        """
        try:
            with urllib.request.urlopen(self._url, timeout=OPEN_TIMEOUT_S) as opened:
                while chunk := opened.read(CHUNK_BYTES):
                    self._commands.stay_open()
                    yield chunk
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(str(error)) from error


def find(commands: Commands, packages: Sequence[LockedPackage]) -> Mapping[str, Download]:
    """The wheels of these packages, all of one Python, by file name; without those that cannot be had by an address."""
    with scratch_folder() as scratch:
        answer = Path(scratch) / "pylock.onnxgate.toml"
        asked = "".join(f"{package.name}=={package.version}\n" for package in packages)
        ask = [*_ASK, "--python-version", packages[0].python, "--output-file", str(answer), "-"]
        if commands.uv(ask, timeout_s=ASK_TIMEOUT_S, stdin=asked).status != 0 or not answer.exists():
            return {}
        urls = _urls(loads(answer.read_text(encoding="utf-8")).get("packages", ()))
        return {unquote(urlsplit(url).path.rpartition("/")[2]): Download(url, commands) for url in urls}


def _urls(packages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    urls = (str(wheel.get("url", "")) for package in packages for wheel in package.get("wheels", ()))
    return (url for url in urls if re.match(r"https?://", url))
