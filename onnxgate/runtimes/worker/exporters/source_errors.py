"""Errors of the user's code or of an exporter, as one line of text and the user's own source line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from . import source
from .source import folders_of, project_path, source_environment, split_source

MAX_TEXT_CHARS = 600
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
# PyTorch's general advice, which does not describe the failure. Source: messages of torch 2.13.
_TORCH_ADVICE = re.compile(
    r"\s*(?:For more information(?: about this error)?, (?:run with TORCH_LOGS=\S+|see: \S+)"
    r"|See the stack trace for more information\."
    r"|The error above occurred when calling torch\.export\.export\..*)"
)


def describe_error(error: BaseException, folders: Sequence[str]) -> Dict[str, Any]:
    """Return the `Failure` of an exception: its cause, without the exporter's wrapping."""
    cause = _find_cause(error)
    return {
        "type": type(cause).__name__,
        "text": one_line(_strip_folders(folders, _error_text(cause))),
        "memory": isinstance(cause, MemoryError) or "can't allocate memory" in str(cause),
        "source": _source_line(error, folders),
    }


def _strip_folders(folders: Sequence[str], text: str) -> str:
    """Make paths of the project relative to the first folder that contains them, so that all machines agree."""
    for folder in folders:
        for spelling in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
            text = text.replace(spelling.rstrip(os.sep) + os.sep, "") if spelling.strip(os.sep) else text
    return text


def plain_text(text: str) -> str:
    """Remove terminal escapes, and text that a carriage return overwrote."""
    lines = _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def one_line(text: str) -> str:
    """Return the first paragraph in one line, without the exporter's advice."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", _TORCH_ADVICE.sub("", plain_text(text)))]
    line = next((part for part in paragraphs if part), "")
    return line if len(line) <= MAX_TEXT_CHARS else line[: MAX_TEXT_CHARS - 3] + "..."


def _error_text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "the source ended the program with status {}".format(error.code)
    if isinstance(error, SyntaxError):
        return error.msg
    return str(error)


def _exception_chain(error: BaseException) -> List[BaseException]:
    """Return the exception and those it was raised from, outermost first."""
    chain = [error]
    while chain[-1].__cause__ is not None and not any(chain[-1].__cause__ is each for each in chain):
        chain.append(chain[-1].__cause__)
    return chain


def _find_cause(error: BaseException) -> BaseException:
    """Return the outermost exception that is not the exporter's own, or the innermost of all."""
    chain = _exception_chain(error)
    return next((each for each in chain if not type(each).__module__.startswith("torch.onnx")), chain[-1])


def _source_line(error: BaseException, folders: Sequence[str]) -> str:
    """Return `file.py:31` of the innermost line of the project's code that was involved; "" if there is none."""
    for path, line in _candidate_lines(error):
        relative = project_path(os.path.abspath(path), folders)
        if relative is not None:
            return "{}:{}".format(relative, line)
    return ""


def _candidate_lines(error: BaseException) -> Iterator[Tuple[str, int]]:
    """Yield the best lines first: a syntax error's own line, frames from the innermost, then lines of the graph."""
    innermost_first = _exception_chain(error)[::-1]
    for find in (_syntax_error_lines, _frame_lines, _node_lines):
        for each in innermost_first:
            for line in reversed(find(each)):
                yield line


def _syntax_error_lines(error: BaseException) -> List[Tuple[str, int]]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [(error.filename, error.lineno)]
    return []


def _frame_lines(error: BaseException) -> List[Tuple[str, int]]:
    return [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]


def _node_lines(error: BaseException) -> List[Tuple[str, int]]:
    """Return lines of the FX node being translated: PyTorch stores them with the node, but not in the error."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        trace = getattr(frame.f_locals.get("node"), "meta", {})
        trace = trace.get("stack_trace") if isinstance(trace, dict) else None
        if isinstance(trace, str):
            return [(path, int(line)) for path, line in _FRAME.findall(trace)]
    return []


def flush_output() -> None:
    """Flush the output of the user's code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


@contextlib.contextmanager
def run_user_code(job: Dict[str, Any], result: Dict[str, Any]) -> Iterator[None]:
    """Run a block with the source's imports and paths; store an exception as the result's failure."""
    file, _ = split_source(job["source"])
    try:
        with source_environment(file, job["folder"]), source.seed_on_import():
            yield
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; its error is the result
        result["failure"] = describe_error(error, folders_of(job))
    flush_output()
