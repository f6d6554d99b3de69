"""Configuration of git's diff driver for models: an attribute in the repository, and a setting in the clone."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnxgate.project.git import repository

ATTRIBUTES = ".gitattributes"
MODEL_PATTERN, DRIVER_ATTRIBUTE = "*.onnx", "diff=onnx"
TEXTCONV_KEY, CACHE_KEY = "diff.onnx.textconv", "diff.onnx.cachetextconv"
_MAX_CHECKED_MODELS = 200
"""Maximum number of models for which the git attribute is verified."""
_MODEL_LINE = re.compile(rb'^[ \t]*(?:\*\.onnx|"\*\.onnx")[ \t]')
_DIFF_ATTRIBUTE = re.compile(rb"(?<=[ \t])(?:diff=\S*|[-!]?diff)(?=\s|$)")

PrintAction = Callable[[str, str], None]


def set_up_git_driver(root: Path, models: Sequence[str], report: PrintAction, *, uses_lfs: bool) -> Iterator[str]:
    """Write the git attribute and the local git setting. Yield the steps that the user still has to take."""
    yield from _write_attribute(root, models, report)
    # With Git LFS, a cached description of a pointer would still be shown after its content was fetched.
    yield from _write_git_setting(root, report, cached="false" if uses_lfs else "true")


def is_git_driver_set_up(root: Path, models: Sequence[str]) -> bool:
    """Return whether git already shows changes to the models with the `onnx` diff driver."""
    return bool(_read_git_setting(root, TEXTCONV_KEY)) and not _find_models_without_driver(root, models)


def _write_attribute(root: Path, models: Sequence[str], report: PrintAction) -> Iterator[str]:
    path, attribute = root / ATTRIBUTES, f"{MODEL_PATTERN} {DRIVER_ATTRIBUTE}"
    if path.is_symlink() or (path.exists() and not path.is_file()):
        report("kept", f"{ATTRIBUTES} (not a regular file)")
        yield f"add the line `{attribute}` to {ATTRIBUTES}"
        return
    before = path.read_bytes() if path.exists() else b""
    if (written := add_driver(before)) != before:
        path.write_bytes(written)
    if _find_models_without_driver(root, models):  # a later line overrides it
        written = _append_driver_line(written)
        path.write_bytes(written)
    if before == written:
        report("kept", f"{ATTRIBUTES} (already contains `{attribute}`)")
    else:
        report("wrote", f"{ATTRIBUTES}: `{DRIVER_ATTRIBUTE}` for `{MODEL_PATTERN}`")
    for model in _find_models_without_driver(root, models)[:1]:
        yield f"another {ATTRIBUTES} overrides the `diff` attribute of {model}: add `{DRIVER_ATTRIBUTE}` to that file"


def add_driver(content: bytes) -> bytes:
    """Return the content of `.gitattributes` with the diff driver added to the last line for `*.onnx`.

    If there is no such line, a new line is appended.
    """
    driver, lines = DRIVER_ATTRIBUTE.encode(), content.splitlines(keepends=True)
    for index, line in reversed(list(enumerate(lines))):
        if _MODEL_LINE.match(line):  # keeps its other attributes
            body = line.rstrip(b" \t\r\n")
            lines[index] = body + b" " + driver + line[len(body) :]
            for match in _DIFF_ATTRIBUTE.finditer(line):  # the last one has effect
                lines[index] = line[: match.start()] + driver + line[match.end() :]
            return b"".join(lines)
    return _append_driver_line(content)


def _append_driver_line(content: bytes) -> bytes:
    end = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content or content.endswith(b"\n") else end
    return content + gap + f"{MODEL_PATTERN} {DRIVER_ATTRIBUTE}".encode() + end


def _find_models_without_driver(root: Path, models: Sequence[str]) -> list[str]:
    """Return the models for which git uses a different driver or no driver."""
    paths = list(models[:_MAX_CHECKED_MODELS]) or ["model.onnx"]
    answer = repository.read_git_output(root, "check-attr", "-z", "diff", "--", *paths) or ""
    return [path for path, value in zip(paths, answer.split("\0")[2::3], strict=False) if value != "onnx"]


def _write_git_setting(root: Path, report: PrintAction, *, cached: str) -> Iterator[str]:
    command = "onnxgate diff --textconv"
    own = Path(sys.executable).with_name(Path(sys.argv[0]).name)
    if shutil.which("onnxgate") is None and own.name.startswith("onnxgate") and own.exists():  # not on PATH
        command = f"{shlex.quote(own.as_posix())} diff --textconv"
    present = _read_git_setting(root, TEXTCONV_KEY)
    if present and present != command and "onnxgate" not in present:
        report("kept", f"git setting {TEXTCONV_KEY} (`{present}`)")
        yield f"to use onnxgate for `git diff`: `git config {TEXTCONV_KEY} '{command}'`"
        return
    if present == command and _read_git_setting(root, CACHE_KEY) == cached:
        report("kept", f"git setting {TEXTCONV_KEY} (unchanged)")
        return
    for name, value in ((TEXTCONV_KEY, command), (CACHE_KEY, cached)):
        if repository.read_git_output(root, "config", "--local", name, value) is None:
            yield f"`git config` failed; run `git config {name} '{value}'`"
            return
    report("set", f"{TEXTCONV_KEY} in the git config of this clone only: `{command}`")


def _read_git_setting(root: Path, name: str) -> str:
    return repository.read_git_line(root, ["config", "--get", name])
