"""Faults of the set-up or of onnxgate itself; what a runtime does to a model is an observation, never one of these."""

from __future__ import annotations


class OnnxgateError(Exception):
    """A fault that ends the command. `message` is lower case without a full stop; `hint` says what to do."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(OnnxgateError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class ConfigError(OnnxgateError):
    """`onnxgate.toml` is wrong; all that is wrong with it is in `problems`."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class LockError(OnnxgateError):
    """`onnxgate.lock` is missing, unreadable or newer than this onnxgate; what is wrong in it is in `problems`."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class ResolutionError(OnnxgateError):
    """A requirement could not be resolved to exact releases: a fault of the environment, or of the requirement."""

    exit_code = 3


class UnavailableError(OnnxgateError):
    """A locked environment could not be made here; the reason is the message."""

    exit_code = 3


class StorageError(OnnxgateError):
    """Something cannot be written: the disk is full, or the folder may not be written to."""

    exit_code = 3
