"""What went wrong in the user's code or in an exporter, as one line and the user's own source line."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .source import below

LONGEST = 600
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
# Advice of PyTorch's own that says nothing about the failure. Source: messages of torch 2.13.
_ADVICE = re.compile(
    r"\s*(?:For more information(?: about this error)?, (?:run with TORCH_LOGS=\S+|see: \S+)"
    r"|See the stack trace for more information\."
    r"|The error above occurred when calling torch\.export\.export\..*)"
)


def describe(error: BaseException, folders: Sequence[str]) -> Dict[str, Any]:
    """The `Failure` of an exception: the cause, not the exporter's wrapping of it."""
    cause = _cause(error)
    return {
        "type": type(cause).__name__,
        "text": one_line(_without(folders, _words(cause))),
        "memory": isinstance(cause, MemoryError) or "can't allocate memory" in str(cause),
        "source": _source(error, folders),
    }


def _without(folders: Sequence[str], text: str) -> str:
    """The same on each machine: paths of the project relative to the first folder that they lie in."""
    for folder in folders:
        for spelling in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
            text = text.replace(spelling.rstrip(os.sep) + os.sep, "") if spelling.strip(os.sep) else text
    return text


def plain(text: str) -> str:
    """Without terminal escapes; what a carriage return overwrote is gone."""
    lines = _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def one_line(text: str) -> str:
    """The first paragraph in one line, without the exporter's advice."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", _ADVICE.sub("", plain(text)))]
    line = next((part for part in paragraphs if part), "")
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "the source ended the program with status {}".format(error.code)
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error)


def _chain(error: BaseException) -> List[BaseException]:
    """The exception and what it was raised from, outermost first."""
    chain = [error]
    while chain[-1].__cause__ is not None and not any(chain[-1].__cause__ is each for each in chain):
        chain.append(chain[-1].__cause__)
    return chain


def _cause(error: BaseException) -> BaseException:
    """The first that is not the exporter's own, else the innermost; a chain that user code made is left as it is."""
    chain = _chain(error)
    return next((each for each in chain if not type(each).__module__.startswith("torch.onnx")), chain[-1])


def _source(error: BaseException, folders: Sequence[str]) -> str:
    """`file.py:31` of the innermost line of the project's own code that had a part in it, "" where there is none."""
    for path, line in _lines(error):
        relative = below(os.path.abspath(path), folders)
        if relative is not None:
            return "{}:{}".format(relative, line)
    return ""


def _lines(error: BaseException) -> Iterator[Tuple[str, int]]:
    """The best first: a syntax error's own line, then frames from the innermost, then lines of the graph."""
    innermost_first = _chain(error)[::-1]
    for find in (_lines_of_syntax, _lines_of_frames, _lines_of_nodes):
        for each in innermost_first:
            for line in reversed(find(each)):
                yield line


def _lines_of_syntax(error: BaseException) -> List[Tuple[str, int]]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [(error.filename, error.lineno)]
    return []


def _lines_of_frames(error: BaseException) -> List[Tuple[str, int]]:
    return [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]


def _lines_of_nodes(error: BaseException) -> List[Tuple[str, int]]:
    """Lines of the FX node that was being translated: PyTorch keeps them with the node and names them nowhere."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        trace = getattr(frame.f_locals.get("node"), "meta", {})
        trace = trace.get("stack_trace") if isinstance(trace, dict) else None
        if isinstance(trace, str):
            return [(path, int(line)) for path, line in _FRAME.findall(trace)]
    return []


def flush() -> None:
    """Hand over what the user's code printed and the interpreter still holds."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
