"""The entry point of `onnxgate` and `python -m onnxgate`. It handles signals before it imports anything else.

With `-m`, even `from __future__ import annotations` would import a `__future__.py` of the current folder.
"""

# `signal` takes 10 ms to import, in which signals would not be handled.
import _signal as signal  # type: ignore[import-not-found]

EXIT_INTERRUPTED = 130


def _exit_early(*_: object) -> None:
    """Exit if a signal arrives before the command starts; nothing has to be cleaned up yet."""
    import os

    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(EXIT_INTERRUPTED)


def main() -> None:
    """Run the `onnxgate` command. Until it handles signals itself, a signal ends the process with status 130."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _exit_early)
    from onnxgate.cli import main as run_command

    run_command()


if __name__ == "__main__":
    import os
    import sys

    # `-m` puts the current folder first, which may be the checked repository and contain a `pathlib.py`.
    if sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
        del sys.path[0]
    main()
