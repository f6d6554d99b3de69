"""Read files of a repository as text for `onnxgate init`."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

from onnxgate.core.files import open_regular
from onnxgate.project import toml

MAX_FILE_BYTES = 50_000_000


class UnreadableFileError(Exception):
    """Raised if a file cannot be read. The message is the reason."""


def read_text(path: Path) -> str:
    """
    Return the text of a regular file.

    Raises:
        UnreadableFileError: the file is missing, not a regular file, not readable, too large, or neither UTF-8 nor
            UTF-16 with a byte order mark.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise UnreadableFileError(f"larger than {MAX_FILE_BYTES:,} bytes")
            content = file.read()
            if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # written by PowerShell; pip reads it
                return content.decode("utf-16").replace("\r\n", "\n")
            return toml.decode(content)
    except FileNotFoundError as error:
        raise UnreadableFileError(
            "broken symbolic link" if path.is_symlink() else "no such file or directory"
        ) from error
    except OSError as error:
        raise UnreadableFileError((error.strerror or str(error)).lower()) from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError("not UTF-8") from error
