"""What lets git show what changed in a model: an attribute, and the program that describes one."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnxgate.baseline import git

ATTRIBUTES = ".gitattributes"
PATTERN, DRIVER = "*.onnx", "diff=onnx"
TEXTCONV, CACHED = "diff.onnx.textconv", "diff.onnx.cachetextconv"
_MODELS = 200
"""So many models are looked at to see whether the attribute reaches them."""
_LINE = re.compile(rb'^[ \t]*(?:\*\.onnx|"\*\.onnx")[ \t]')
_DIFF = re.compile(rb"(?<=[ \t])(?:diff=\S*|[-!]?diff)(?=\s|$)")

Tell = Callable[[str, str], None]


def set_up(root: Path, models: Sequence[str], tell: Tell, *, uses_lfs: bool) -> Iterator[str]:
    """Write the attribute and the repository's own setting; yields what is left to the user."""
    yield from _write_attribute(root, models, tell)
    yield from _write_setting(root, tell, keeps=not uses_lfs)


def is_set_up(root: Path, models: Sequence[str]) -> bool:
    """Git shows models through a driver of this name already."""
    return bool(_setting(root, TEXTCONV)) and not _unreached(root, models)


def _write_attribute(root: Path, models: Sequence[str], tell: Tell) -> Iterator[str]:
    path = root / ATTRIBUTES
    if path.is_symlink() or (path.exists() and not path.is_file()):
        tell("kept", f"{ATTRIBUTES}, which is no file of its own")
        yield f"let git know models: a line `{PATTERN} {DRIVER}` in {ATTRIBUTES}"
        return
    before = path.read_bytes() if path.exists() else b""
    written = with_driver(before)
    _put(path, before, written)
    if _unreached(root, models):  # a later line says otherwise
        _put(path, written, written := _appended(written))
    tell(*_said(before, written))
    for model in _unreached(root, models)[:1]:
        yield f"`git check-attr diff {model}` says that another {ATTRIBUTES} rules it: write `{DRIVER}` there"


def _put(path: Path, before: bytes, content: bytes) -> None:
    if content != before:
        path.write_bytes(content)


def _said(before: bytes, written: bytes) -> tuple[str, str]:
    if before == written:
        return "kept", f"{ATTRIBUTES}, which has `{PATTERN} {DRIVER}`"
    return "wrote", f"{ATTRIBUTES}: `{DRIVER}` for `{PATTERN}`"


def with_driver(content: bytes) -> bytes:
    """The attributes with our driver on the last line about all models; with a line of its own where there is none."""
    lines = content.splitlines(keepends=True)
    for index in range(len(lines) - 1, -1, -1):
        if _LINE.match(lines[index]):
            lines[index] = _with_driver(lines[index])
            return b"".join(lines)
    return _appended(content)


def _with_driver(line: bytes) -> bytes:
    """One line; whatever else it says stays as it is."""
    driver = DRIVER.encode()
    if _DIFF.search(line):
        last = [*_DIFF.finditer(line)][-1]
        return line[: last.start()] + driver + line[last.end() :]
    body = line.rstrip(b" \t\r\n")
    return body + b" " + driver + line[len(body) :]


def _appended(content: bytes) -> bytes:
    end = b"\r\n" if b"\r\n" in content else b"\n"
    gap = b"" if not content or content.endswith(b"\n") else end
    return content + gap + f"{PATTERN} {DRIVER}".encode() + end


def _unreached(root: Path, models: Sequence[str]) -> list[str]:
    """The models for which git would use another driver."""
    paths = list(models[:_MODELS]) or ["model.onnx"]
    answer = git.answer(root, "check-attr", "-z", "diff", "--", *paths)
    if answer is None:
        return []
    return [path for path, value in zip(paths, answer.split("\0")[2::3], strict=False) if value != "onnx"]


def _write_setting(root: Path, tell: Tell, *, keeps: bool) -> Iterator[str]:
    """`keeps`: git keeps descriptions. With Git LFS it would go on showing a pointer after its content was fetched."""
    command, kept = _command(), "true" if keeps else "false"
    there = _setting(root, TEXTCONV)
    if there and there != command and "onnxgate" not in there:
        tell("kept", f"git's setting {TEXTCONV}, which is `{there}`")
        yield f"let git describe models by onnxgate: `git config {TEXTCONV} '{command}'`"
        return
    if there == command and _setting(root, CACHED) == kept:
        tell("kept", f"git's setting {TEXTCONV}, which is the same")
        return
    for name, value in ((TEXTCONV, command), (CACHED, kept)):
        if git.answer(root, "config", "--local", name, value) is None:
            yield f"git could not be told: `git config {name} '{value}'`"
            return
    tell("set", f"{TEXTCONV} in this clone's git config, where each clone needs it: `{command}`")


def _command() -> str:
    """What git runs; with its folder, where it would not be found by name."""
    program = shutil.which("onnxgate")
    own = Path(sys.executable).with_name(Path(sys.argv[0]).name)
    if program is None and own.name.startswith("onnxgate") and own.exists():
        return f"{shlex.quote(own.as_posix())} diff --textconv"
    return "onnxgate diff --textconv"


def _setting(root: Path, name: str) -> str:
    return git.words(root, ["config", "--get", name])
