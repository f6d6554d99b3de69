"""Errors that end a command. A runtime that rejects a model is an observation, not an error."""

from __future__ import annotations

ISSUE_TRACKER_URL = "https://github.com/onnxgate/onnxgate/issues"


class OnnxgateError(Exception):
    """An error that ends the command. `message` starts in lower case and has no period; `hint` describes the fix."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(OnnxgateError):
    """Command-line arguments are invalid or cannot be combined."""

    exit_code = 2


class ConfigError(OnnxgateError):
    """`onnxgate.toml` is invalid; `problems` lists all errors in it."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class LockError(OnnxgateError):
    """`onnxgate.lock` is missing, unreadable or newer than this onnxgate; `problems` lists the errors in it."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class ResolutionError(OnnxgateError):
    """A requirement could not be resolved to exact releases. The requirement or the environment may be the cause."""

    exit_code = 3


class UnavailableError(OnnxgateError):
    """A locked environment could not be created on this machine; the message contains the reason."""

    exit_code = 3


class StorageError(OnnxgateError):
    """A file cannot be written: the disk is full, or the folder is not writable."""

    exit_code = 3
