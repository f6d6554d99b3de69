"""Environments of the locked runtimes on this machine, as written by `onnxgate runtimes list --output json`."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1

State = Literal["ready", "not-prepared", "broken", "unavailable", "own"]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One locked runtime and the state of its environment."""

    runtime: str  # "onnxruntime 1.18.1"
    targets: tuple[str, ...]
    engine: str
    release: str
    python: str = ""  # minor version, such as "3.11"; "" for Node.js and your own environment
    state: State
    reason: str = ""  # why the environment is not ready
    hint: str = ""
    folder: str = ""  # path, even if it does not exist yet
    size_bytes: int = 0  # disk usage
    freed_bytes: int = 0  # disk space that removing the environment frees


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python version that locked runtimes need."""

    python: str  # "3.11"
    path: str = ""  # "" if none was found
    hint: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The environments of all locked runtimes, with their paths on this machine."""

    version: int = VERSION
    cache: str  # folder of the environments
    runtimes: tuple[Environment, ...] = ()
    interpreters: tuple[Interpreter, ...] = ()
    size_bytes: int = 0  # disk usage; shared files are counted once
    freed_bytes: int = 0
