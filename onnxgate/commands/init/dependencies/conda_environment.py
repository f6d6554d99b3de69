"""Read the `dependencies` list of a conda `environment.yml` without a YAML parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

_KEY = re.compile(r"""(['"]?)([\w.-]+)\1\s*:(?:\s+(.*))?""")
_QUOTED = re.compile(r"""(['"])([^'"\\]*)\1\s*(?:#.*)?""")
_SPECIAL_START = tuple("[]{}&*!|>%@`'\",?:")
"""Characters with a special meaning in YAML at the start of a value."""


class EnvironmentEntry(NamedTuple):
    """One dependency in a conda environment, or the text of a line that could not be parsed."""

    kind: Literal["conda", "pip", "not read"]
    text: str
    line: int


def read_environment(text: str) -> Iterator[EnvironmentEntry]:
    """Yield the entries of `dependencies` and of the `pip` list in it.

    Only lists with one plain or quoted value per line are supported. Other lines in the section are yielded as not
    parsed, because one of them may contain the runtime.
    """
    found = inside = in_pip = False
    indents: dict[str, int] = {}  # of the items of each list
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        is_item = content == "-" or content.startswith("- ")
        key = _KEY.fullmatch(content) if indent == 0 and not is_item else None
        if key is not None or line.startswith(("---", "...")):
            inside = in_pip = False
            indents = {}
            if key is not None and key[2] == "dependencies":
                found = True
                inside = not _strip_comment(key[3] or "")
                if not inside:
                    yield EnvironmentEntry("not read", content, number)
        elif inside:
            value = content[1:].strip()
            if is_item and indents.setdefault("conda", indent) == indent:
                in_pip = re.fullmatch(r"pip\s*:", _strip_comment(value)) is not None
                indents.pop("pip", None)
                if not in_pip:
                    yield _read_value("conda", value, number)
            elif is_item and in_pip and indent > indents["conda"] and indents.setdefault("pip", indent) == indent:
                yield _read_value("pip", value, number)
            else:
                yield EnvironmentEntry("not read", content, number)
    if not found and (elsewhere := re.search(r"^.*\bonnxruntime\b.*$", text, re.MULTILINE)):
        yield EnvironmentEntry("not read", elsewhere[0].strip(), text.count("\n", 0, elsewhere.start()) + 1)


def _strip_comment(value: str) -> str:
    return re.split(r"(?:^|\s)#", value)[0].rstrip()


def _read_value(kind: Literal["conda", "pip"], value: str, line: int) -> EnvironmentEntry:
    if quoted := _QUOTED.fullmatch(value):
        return EnvironmentEntry(kind, quoted[2].strip(), line)
    plain = _strip_comment(value)
    is_mapping = plain.endswith(":") or re.search(r":\s", plain)
    is_template = "{{" in plain
    if not plain or is_mapping or is_template or plain.startswith((*_SPECIAL_START, "- ")):
        return EnvironmentEntry("not read", f"- {value}", line)
    return EnvironmentEntry(kind, plain, line)
