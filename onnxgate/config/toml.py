"""TOML as Python reads it, whichever Python it is."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

TOMLDecodeError = tomllib.TOMLDecodeError


def loads(text: str) -> dict[str, Any]:
    """The values of a TOML text; `TOMLDecodeError` names line and column."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except TOMLDecodeError:
        raise
    except RecursionError:
        raise TOMLDecodeError("nested too deeply (at end of document)") from None
    except ValueError as error:  # an integer of thousands of digits
        raise TOMLDecodeError(f"{error} (at end of document)") from error
    return values


def decode(data: bytes) -> str:
    """The text of a TOML file; `UnicodeDecodeError` where it is not UTF-8. A byte order mark is dropped."""
    return data.decode("utf-8-sig").replace("\r\n", "\n")
