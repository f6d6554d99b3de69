"""Convert version ranges of Poetry, conda and npm to version specifiers for Python packages."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from onnxgate.commands.init.text_files import UnreadableFileError

_RELEASE = r"v?(\d+(?:\.\d+)*)"


def convert_poetry_version(text: str) -> str:
    """Convert a version constraint of Poetry or Pipenv to a specifier, such as `^1.18` to `>=1.18,<2`."""
    return ",".join(filter(None, (_convert_clause(clause.strip(), text) for clause in text.split(","))))


def convert_conda_version(text: str) -> str:
    """Convert a version constraint of conda to a specifier, such as `=1.18` to `==1.18.*`."""
    clauses = []
    for clause in text.split(","):
        single = re.fullmatch(r"(=?)(\d+(?:\.\d+)*)(\.?\*)?", clause)
        if single:
            is_prefix = single[3] or (single[1] and single[2].count(".") < 2)
            clauses.append(f"=={single[2]}.*" if is_prefix else f"=={single[2]}")
        else:
            clauses.append(_convert_clause(clause, text))
    return ",".join(filter(None, clauses))


def convert_npm_range(text: str) -> str:
    """Convert a version range of npm to a specifier, such as `~1.20.1` to `>=1.20.1,<1.21`."""
    stripped = text.strip()
    if stripped in ("", "latest"):
        return ""
    if between := re.fullmatch(rf"{_RELEASE}\s+-\s+{_RELEASE}", stripped):
        return f">={between[1]},<={between[2]}"
    clauses = re.sub(r"([<>=^~])\s+", r"\1", stripped).split()
    converted = []
    for clause in clauses:
        shortened = re.fullmatch(rf"=?{_RELEASE}", clause)
        if shortened and shortened[1].count(".") < 2:  # `1.20` means `1.20.x`
            clause = f"{shortened[1]}.*"
        converted.append(_convert_clause(re.sub(r"(?:\.[xX*])+$", ".*", clause), text))
    return ",".join(filter(None, converted))


def _convert_clause(clause: str, text: str) -> str:
    """Convert one clause of a version range of Poetry or npm to a specifier. `text` is the whole range.

    Raises:
        UnreadableFileError: the clause is a tag, a URL or another form that does not contain releases.
    """
    if clause in ("*", "x", ""):
        return ""
    if match := re.fullmatch(rf"\^{_RELEASE}(?:\.\*)?", clause):
        parts = [int(part) for part in match[1].split(".")]
        significant = next((index for index, part in enumerate(parts) if part), len(parts) - 1)
        return f">={match[1]},<{'.'.join(map(str, (*parts[:significant], parts[significant] + 1)))}"
    if match := re.fullmatch(rf"~{_RELEASE}(?:\.\*)?", clause):
        parts = [int(part) for part in match[1].split(".")][:2]
        return f">={match[1]},<{'.'.join(map(str, (*parts[:-1], parts[-1] + 1)))}"
    if re.fullmatch(rf"=?{_RELEASE}(?:\.\*)?", clause):
        return f"=={clause.lstrip('=v')}"
    try:
        return str(SpecifierSet(clause))
    except InvalidSpecifier as error:
        raise UnreadableFileError(f"the version `{text}` is not supported") from error
