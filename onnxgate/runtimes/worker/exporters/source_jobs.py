"""Jobs of a toolchain: export and trace sources, collect the user's inputs, and run commands that write models."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import platform
import subprocess
import sys
import threading
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from . import FRAMEWORKS, Framework, source
from .source import (
    Phase,
    SourceError,
    Wire,
    describe_type,
    describe_value,
    run_user_code,
    split_source,
    unexpected_return,
)

PRELOADED_MODULES = ("numpy", "onnx", "onnxscript")
"""Modules that exporters need. They are imported first, so that user files with the same name cannot replace them."""


class ConverterMissingError(Exception):
    """A framework's converter is not installed; the message names the package to install."""


def export(job: Wire, phase: Phase) -> Wire:
    """Run an `Export` job. Errors of the user's code and of the exporter are part of the result."""
    result: Wire = {"kind": "export", "model": None, "input_names": []}
    source.choose_seed(job.get("seed", source.DEFAULT_SEED))
    for name in PRELOADED_MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # the exporter reports it later
            pass
    with run_user_code(job, result):
        returned = _call_source(job, phase)
        framework = find_framework(returned, job["source"])
        if job["export"]:
            require_converters(framework.title, framework.converters)
        module, function = framework.exporter.split(":")
        getattr(importlib.import_module("." + module, __package__), function)(job, returned, result, phase)
    return result


def require_converters(title: str, converters: Tuple[str, ...]) -> None:
    """Raise `ConverterMissingError` if one of the converters is not installed."""
    missing = [name for name in converters if importlib.util.find_spec(name) is None]
    if missing:
        names = "` and `".join(missing)
        install = f"`pip install {' '.join(missing)}`"
        problem = (
            f"exporting {title} models requires `{names}`; run {install} in the environment that exports the models"
        )
        raise ConverterMissingError(problem)


def _call_source(job: Wire, phase: Phase, kind: str = "source") -> Any:
    phase("import of the " + kind)
    source.seed_generators()
    build = source.load_callable(job["source"])
    phase("call of the " + kind)
    source.seed_generators()
    return build()


def find_framework(returned: Any, source: str) -> Framework:
    """Return the framework of the model that a source returned.

    Raises:
        SourceError: the framework is unknown.
    """
    by_module = {
        module: framework for framework in FRAMEWORKS for module in (*framework.modules, *framework.class_modules)
    }
    for value in _candidate_models(returned):
        for base in type(value).__mro__:
            module = str(base.__module__).partition(".")[0]
            if module in by_module:
                return by_module[module]
    imported = {framework for module, framework in by_module.items() if module in sys.modules}
    if len(imported) == 1:  # its exporter reports a better error
        return imported.pop()
    *titles, last_title = (framework.title for framework in FRAMEWORKS)
    expected = "`(model, inputs)` or a mapping with `model` and `args`"
    supported = f"{', '.join(titles)} or {last_title}"
    raise unexpected_return(
        source, f"{describe_value(returned)}, which is not a {supported} model; expected {expected}"
    )


def _candidate_models(returned: Any) -> Iterator[Any]:
    """Yield values that may be the model, the most likely one first: the value, its elements, and their elements."""
    level = [returned]
    for _ in range(3):
        yield from level
        parts: List[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                parts += [value["model"]] if "model" in value else []
                parts += value.values()
            elif type(value) in (tuple, list):
                parts += value
        level = parts


def trace(job: Wire, phase: Phase) -> Wire:
    """Run a `Trace` job. Errors of the user's code and of the exporter are part of the result."""
    result: Wire = {"kind": "trace", "values": {}, "failure": None}
    with run_user_code(job, result):
        returned = _call_source(job, phase)
        importlib.import_module(".pytorch", __package__).trace(job, returned, result, phase)
    return result


MAX_CASES = 100
"""Maximum number of cases, since a generator may be infinite."""


def inputs(job: Wire, phase: Phase) -> Wire:
    """Run an `Inputs` job. Errors of the user's code are part of the result."""
    result: Wire = {"kind": "inputs", "cases": [], "failure": None}
    with run_user_code(job, result):
        _collect_cases(job, result["cases"], phase)
    return result


def _collect_cases(job: Wire, cases: List[Dict[str, str]], phase: Phase) -> None:
    from . import eager  # imports numpy, which a user's file with the same name must not replace

    name = f"`{split_source(job['source'])[1]}`"
    returned = _call_source(job, phase, "inputs")
    if isinstance(returned, Mapping) or not hasattr(returned, "__iter__"):
        expected = "a list of mappings from input names to arrays"
        raise unexpected_return(job["source"], f"{describe_type(returned)}; expected {expected}")
    for index, case in enumerate(returned):
        if index == MAX_CASES:
            raise SourceError(f"{name} returned more than {MAX_CASES} cases; return at most {MAX_CASES}")
        where = f"case {index} of {name}"
        if not isinstance(case, Mapping):
            raise SourceError(f"{where} is {describe_type(case)}; expected a mapping from input names to arrays")
        odd = next((key for key in case if not isinstance(key, str)), "")
        if odd != "":
            raise SourceError(f"{where} has the key `{odd}`, which is not a string; expected the name of an input")
        folder = os.path.join(job["output"], str(index))
        os.makedirs(folder)
        paths = {key: os.path.join(folder, f"{number}.npy") for number, key in enumerate(case)}
        for key, path in paths.items():
            eager.save_input(path, case[key], f"`{key}` in {where}")
        cases.append(paths)
    if not cases:
        raise SourceError(f"{name} returned no cases")


def probe(job: Wire, phase: Phase) -> Wire:
    """Import the requested exporters to warm them up, and return the Python version. Import errors are ignored."""
    for name in (*PRELOADED_MODULES, *job["exporters"]):
        phase("import of " + name)
        try:
            module = importlib.import_module(name)
            if name == "torch":  # loading the exporter's operators takes 1.9 s. Source: torch 2.13
                model, example = module.nn.Identity(), (module.zeros(1),)
                module.onnx.export(model, example, io.BytesIO(), dynamo=True, verbose=False)
        except Exception:  # noqa: BLE001 - a later export reports the error
            pass
    source.flush_output()
    return {"kind": "probe", "python": platform.python_version(), "packages": {}}


LOG_TAIL_BYTES = 64 * 1024
NOT_STARTED_STATUS = 127  # as shells return for a command that cannot be started
_GRACE_S = 2.0


def command(job: Wire, phase: Phase) -> Wire:
    """Run a `Command` job: a user's command, without a shell.

    The child stays in this process group and ends with it. Background processes of the command are not waited for,
    even if they keep the output open.
    """
    argv = job["argv"]
    phase(f"command `{argv[0]}`")
    try:
        child = subprocess.Popen(
            argv,
            cwd=job["folder"],
            env={**os.environ, **job["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        log = f"`{argv[0]}` cannot be started: {error.strerror or error}"
        return {"kind": "command", "status": NOT_STARTED_STATUS, "log": log}
    chunks: List[bytes] = []
    reader = threading.Thread(target=_read_tail, args=(child, chunks), daemon=True)
    reader.start()
    status = child.wait()
    reader.join(_GRACE_S)
    tail = b"".join(chunks)[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return {"kind": "command", "status": status, "log": source.plain_text(tail)}


def _read_tail(child: subprocess.Popen[bytes], chunks: List[bytes]) -> None:
    assert child.stdout is not None
    with child.stdout as output:
        for chunk in iter(lambda: os.read(output.fileno(), 65536), b""):
            chunks.append(chunk)
            while sum(map(len, chunks)) - len(chunks[0]) > LOG_TAIL_BYTES:
                del chunks[0]
