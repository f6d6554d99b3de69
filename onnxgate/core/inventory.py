"""The locked environments on this machine, as in `onnxgate runtimes list --output json`."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1

State = Literal["ready", "not-prepared", "broken", "unavailable", "own"]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One locked runtime, and what is there of its environment."""

    runtime: str  # "onnxruntime 1.18.1"
    targets: tuple[str, ...]
    engine: str
    release: str
    python: str = ""  # "3.11"; "" under Node and in an environment of the user's own
    state: State
    reason: str = ""  # why it is not ready
    hint: str = ""
    folder: str = ""  # where it lies, or would lie
    size_bytes: int = 0  # what it takes on disk
    freed_bytes: int = 0  # what removing it would free: files that uv's cache has, too, stay there


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python that locked runtimes need."""

    python: str  # "3.11"
    path: str = ""  # "" where none was found
    hint: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. It is about this machine, and names its folders."""

    version: int = VERSION
    cache: str  # the folder that environments lie in
    runtimes: tuple[Environment, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    size_bytes: int = 0  # of these environments together; a file that several have counts once
    freed_bytes: int = 0
