"""The pipe to the host: one line of JSON per job, one line per phase and per reply."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Iterator, List


class Channel:
    """Requests and replies, on private duplicates of the descriptors 0 and 1.

    From then on, descriptor 0 is empty and 1 is a second 2, for Python, native code and child processes alike:
    whatever they print is only a log, and whatever they read is no job.
    """

    def __init__(self) -> None:
        self._incoming = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
        self._outgoing = os.dup(1)
        self._id = 0
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        _print_by_lines()

    def requests(self) -> Iterator[Dict[str, Any]]:
        """One after another, until the host has no more."""
        for line in self._incoming:
            request = json.loads(line)
            self._id = request["id"]
            yield request

    def phase(self, name: str) -> None:
        """Say what begins now, so that the host knows what a crash interrupted."""
        self._send({"id": self._id, "phase": name})

    def note(self, notes: List[str]) -> None:
        """Say what could not be taken from this process."""
        if notes:
            self._send({"id": self._id, "phase": "rights", "notes": notes})

    def reply(self, reply: Dict[str, Any]) -> None:
        """Answer the request at hand."""
        self._send({"id": self._id, "reply": reply})

    def _send(self, message: Dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        while data:
            data = data[os.write(self._outgoing, data) :]


def _print_by_lines() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
