"""Environments of the locked runtimes on this machine, as written by `onnxgate runtimes list --output json`."""

from __future__ import annotations

from typing import Literal

import msgspec

VERSION = 1

State = Literal["ready", "not-prepared", "broken", "unavailable", "own"]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """One locked runtime and the state of its environment."""

    runtime: str  # name of the runtime, such as "onnxruntime 1.18.1"
    targets: tuple[str, ...]  # names of the targets that require the runtime
    engine: str  # name of the engine, such as "onnxruntime"
    release: str  # version of the engine, such as "1.18.1"
    python: str = ""  # Python version, such as "3.11"; "" for Node.js and your own environment
    state: State  # state of the environment; "own": an environment that you provide
    reason: str = ""  # why the environment cannot be used; "" if there is no problem
    hint: str = ""  # what to do next; "" if nothing needs to be done
    folder: str = ""  # path of the environment, even if it does not exist yet
    size_bytes: int = 0  # disk usage
    freed_bytes: int = 0  # disk space that is freed if the environment is removed


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """A Python version that locked runtimes need."""

    python: str  # Python version, such as "3.11"
    path: str = ""  # path of the interpreter; "" if none was found
    hint: str = ""  # how to install the interpreter; "" if it was found


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The environments of all locked runtimes, with their paths on this machine."""

    version: int = VERSION  # version of this format
    cache: str  # folder that contains the environments
    runtimes: tuple[Environment, ...] = ()  # locked runtimes and their environments
    interpreters: tuple[Interpreter, ...] = ()  # Python versions that the locked runtimes need
    size_bytes: int = 0  # disk usage of all environments; shared files are counted once
    freed_bytes: int = 0  # disk space that is freed if all environments are removed
