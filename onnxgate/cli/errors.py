"""The one place where errors end: what the user reads, and the exit status."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from onnxgate.cli import interruption
from onnxgate.errors import OnnxgateError

if TYPE_CHECKING:
    from pathlib import Path

USAGE = 2
BUG = 3
INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell sees of a program that SIGPIPE ended


@contextmanager
def answered() -> Iterator[None]:
    """Turn whatever goes wrong inside into words on stderr and an exit status."""
    try:
        interruption.obey()
        _open_streams()
        _never_fail_to_print()
        yield
    except BrokenPipeError:
        _close_quietly()
        sys.exit(BROKEN_PIPE)
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        say(_in_clicks_words(error))
        sys.exit(error.exit_code)
    except OnnxgateError as error:
        say(*_in_words(error))
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - the last resort, and it is written down
        from onnxgate.cli import shortages

        say(*(shortages.in_words(error) or _as_a_bug(error)))
        _close_quietly()
        sys.exit(BUG)
    finally:
        interruption.close()


def say(*lines: str) -> None:
    """Write lines to stderr; nothing in them is obeyed by a terminal or by GitHub's runner."""
    from onnxgate.formats.escape import log_line

    with suppress(OSError):  # nobody listens, or the disk is full; the status still says how it ended
        for line in "\n".join(lines).splitlines():
            click.echo(log_line(line), err=True)


def _in_words(error: OnnxgateError) -> Iterator[str]:
    """Foreign strings in it, such as values of a config, begin no line of their own: it would be taken for ours."""
    from onnxgate.formats.escape import visible

    yield f"error: {visible(error.message)}"
    for problem in getattr(error, "problems", ()):
        yield f"  {visible(problem)}"
    if error.hint:
        yield f"hint: {visible(error.hint)}"


def _in_clicks_words(error: click.ClickException) -> str:
    words = io.StringIO()
    error.show(file=words)
    return words.getvalue()


def _as_a_bug(error: Exception) -> Iterator[str]:
    yield f"error: this is a bug in onnxgate: {type(error).__name__}: {error}"
    text = _bug_report(error)
    try:
        yield f"hint: report it with the contents of `{_written(text)}`"
    except OSError as refused:
        yield f"the report could not be written ({refused}); it is:"
        yield text


def _bug_report(error: Exception) -> str:
    """What a maintainer needs to know: versions, the command line and the traceback."""
    import platform
    import traceback

    from onnxgate import __version__

    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    head = (f"onnxgate {__version__}", f"{python} on {system}", f"arguments: {sys.argv[1:]}", "")
    return "\n".join((*head, *traceback.format_exception(error)))


def _written(text: str) -> Path:
    """Where the report was written; the same bug is the same file."""
    import hashlib

    from onnxgate.runtimes.store import cache_dir

    folder = cache_dir() / "bugs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}.txt"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def _never_fail_to_print() -> None:
    """A character that the terminal's encoding lacks becomes an escape, and no error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_streams() -> None:
    """A standard stream that is closed leads nowhere: no file that is opened later may take its number."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace"))


def _close_quietly() -> None:
    """Leave nothing in the buffers that the interpreter would try, and fail, to write at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
