"""Import and call the user's source as `python file.py` would, parse its return value, and describe its errors.

An error is described in one line, which includes the line of the user's code where it occurred.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import random
import re
import sys
import traceback
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

Phase = Callable[[str], None]
Wire = Dict[str, Any]
MIN_SIMILARITY = 0.65
"""Minimum similarity between a name and the suggested spelling, as in `onnxgate.core.text`."""

# Modules imported from the folder of each source: two folders may have different modules with the same name, and a
# module that registers an operator must not be imported twice in one process.
_imported: Dict[str, Dict[str, ModuleType]] = {}


class SourceError(Exception):
    """The source is missing, or returned an unexpected value; the message describes what is expected."""


def split_source(source: str) -> Tuple[str, str]:
    """Split `<file>.py:<callable>` into the file and the name of the callable."""
    file, _, name = source.rpartition(":")
    return os.path.abspath(file), name


def folders_of(job: Dict[str, Any]) -> Tuple[str, str]:
    """Return the folders of the project's code: the folder of the config and the folder of the source."""
    return job["folder"], os.path.dirname(split_source(job["source"])[0])


def load_callable(source: str) -> Callable[[], Any]:
    """Import and return the callable. Must be called inside `source_environment`."""
    file, name = split_source(source)
    if not os.path.isfile(file):
        raise SourceError(f"file `{os.path.basename(file)}` does not exist")
    target: Any = _import_file(file)
    for part in name.split("."):
        parent, target = target, getattr(target, part, None)
        if target is None:
            names = (
                [key for key, value in vars(parent).items() if callable(value)] if hasattr(parent, "__dict__") else []
            )
            near = difflib.get_close_matches(part, names, 1, MIN_SIMILARITY)
            hint = f"; did you mean `{name.replace(part, near[0])}`?" if near else ""
            raise SourceError(f"`{os.path.basename(file)}` has no callable `{name}`{hint}")
    if not callable(target):
        raise SourceError(f"`{os.path.basename(file)}` has no callable `{name}`")
    return target  # type: ignore[no-any-return]


def _import_file(file: str) -> ModuleType:
    """Import a file under its stem, which exporters write into models, unless another module already has that name."""
    name = os.path.splitext(os.path.basename(file))[0]
    imported = sys.modules.get(name)
    if name in sys.builtin_module_names if imported is None else getattr(imported, "__file__", None) != file:
        name = "source_of_" + name
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SourceError(f"`{os.path.basename(file)}` is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def source_environment(file: str, folder: str) -> Iterator[None]:
    """Set up imports and paths in the block as for `python file.py` in `folder`; restore them at the end."""
    source_folder = os.path.dirname(file)
    path, before, directory, argv = list(sys.path), dict(sys.modules), os.getcwd(), list(sys.argv)
    sys.modules.update(_imported.get(source_folder, {}))
    sys.path[:0] = [source_folder, folder]
    sys.argv[:] = [file]
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(directory)
        sys.path[:], sys.argv[:] = path, argv
        folders, removed = (folder, source_folder), {}
        for name, module in list(sys.modules.items()):
            origin: Any = getattr(module, "__file__", None)
            if before.get(name) is not module and isinstance(origin, str) and project_path(origin, folders) is not None:
                removed[name] = sys.modules.pop(name)
        _imported[source_folder] = removed


def project_path(path: str, folders: Sequence[str]) -> Optional[str]:
    """Return the path of a project file relative to the first folder, with `/`; None for other files.

    Packages installed in an environment inside the project do not count as project files.
    """
    real_folders = [os.path.realpath(folder) for folder in folders]
    for file, roots in ((path, folders), (os.path.realpath(path), real_folders)):
        for root in roots:
            if _contains_path(root, file) and not _is_installed(file, root):
                return os.path.relpath(file, roots[0]).replace(os.sep, "/")
    return None


def _is_installed(path: str, folder: str) -> bool:
    parts = path[len(folder) :].replace(os.sep, "/").split("/")
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return any(
        _contains_path(folder, prefix) and _contains_path(prefix, path) for prefix in (sys.prefix, sys.base_prefix)
    )


def _contains_path(folder: str, path: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


DEFAULT_SEED = 0
_current_seed = [DEFAULT_SEED]
_SEED_FUNCTIONS = {"numpy": "random.seed", "torch": "manual_seed", "tensorflow": "random.set_seed"}


def choose_seed(number: int) -> None:
    """Set the seed that `seed_generators` uses until the next call."""
    _current_seed[0] = number


def seed_generators() -> None:
    """Seed the global generators of the standard library, numpy, PyTorch and TensorFlow."""
    random.seed(_current_seed[0])
    for name in _SEED_FUNCTIONS:
        _seed_framework(name)


def _seed_framework(name: str) -> None:
    part: Any = sys.modules.get(name)
    for attribute in _SEED_FUNCTIONS[name].split("."):
        part = getattr(part, attribute, None)
    if part is not None:
        part(_current_seed[0])


class _SeedingLoader(SourceFileLoader):
    """Loads a framework and seeds its generator immediately, since a source may use it right after the import."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _seed_framework(module.__name__)


class _SeedingFinder(MetaPathFinder):
    """Finds frameworks at their usual locations, so that their generators are seeded on import."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(fullname) if fullname in _SEED_FUNCTIONS and path is None else None
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _SeedingLoader(spec.loader.name, spec.loader.path)
        return spec


@contextlib.contextmanager
def run_user_code(job: Dict[str, Any], result: Dict[str, Any]) -> Iterator[None]:
    """Run the block with the source's imports and paths; store an exception as the failure of the result."""
    finder = _SeedingFinder()
    try:
        with source_environment(split_source(job["source"])[0], job["folder"]):
            sys.meta_path.insert(0, finder)
            try:
                yield
            finally:
                sys.meta_path.remove(finder)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; its error is the result
        result["failure"] = describe_error(error, folders_of(job))
    flush_output()


def flush_output() -> None:
    """Flush the output of the user's code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


MAX_TEXT_CHARS = 600
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
# General advice of PyTorch that does not describe the failure. Source: messages of torch 2.13.
_TORCH_ADVICE = re.compile(
    r"\s*(?:For more information(?: about this error)?, (?:run with TORCH_LOGS=\S+|see: \S+)"
    r"|See the stack trace for more information\."
    r"|The error above occurred when calling torch\.export\.export\..*)"
)


def describe_error(error: BaseException, folders: Sequence[str]) -> Dict[str, Any]:
    """Return the `Failure` of an exception, described by its cause instead of the wrappers around it."""
    chain = _error_chain(error)
    cause = next((part for part in chain if not _is_wrapper(part)), chain[-1])
    text = _error_text(cause, folders)
    root = _error_text(chain[-1], folders)
    if not type(cause).__module__.startswith("torch") and root not in text:
        text = f"{text} (caused by {type(chain[-1]).__name__}: {root})"
    return {
        "type": type(cause).__name__,
        "text": _truncate(text),
        "memory": isinstance(cause, MemoryError) or "can't allocate memory" in str(cause),
        "source": _source_line(chain, folders),
    }


def _error_chain(error: BaseException) -> List[BaseException]:
    """Return the exception and its causes, outermost first."""
    chain = [error]
    while True:
        last = chain[-1]
        cause = last.__cause__
        if cause is None and _is_raised_import(last) and not last.__suppress_context__:
            cause = last.__context__
        if cause is None or any(cause is part for part in chain):
            return chain
        chain.append(cause)


def _is_wrapper(error: BaseException) -> bool:
    """Return whether the exception only reports that another one occurred.

    Source: torch.onnx, and `_LazyModule` of transformers 5.24, which imports a module when a class is first used.
    """
    is_lazy_import = _is_raised_import(error) and error.__cause__ is not None
    return type(error).__module__.startswith("torch.onnx") or is_lazy_import


def _is_raised_import(error: BaseException) -> bool:
    """Return whether a package raised this import error itself: Python's own import errors have a name."""
    return isinstance(error, ImportError) and error.name is None


def _error_text(error: BaseException, folders: Sequence[str]) -> str:
    """Return the first paragraph of the message, with paths relative to the folders."""
    text = str(error)
    if isinstance(error, SystemExit):
        text = f"the source exited with status {error.code}"
    elif isinstance(error, SyntaxError):
        text = error.msg
    for folder in folders:  # make paths relative, so that the text does not depend on the machine
        for spelling in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
            text = text.replace(spelling.rstrip(os.sep) + os.sep, "") if spelling.strip(os.sep) else text
    return one_line(text)


def plain_text(text: str) -> str:
    """Remove terminal escapes and text that a carriage return overwrites."""
    lines = _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def one_line(text: str) -> str:
    """Return the first paragraph in one line, without the exporter's general advice."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", _TORCH_ADVICE.sub("", plain_text(text)))]
    return _truncate(next((part for part in paragraphs if part), ""))


def _truncate(line: str) -> str:
    return line if len(line) <= MAX_TEXT_CHARS else line[: MAX_TEXT_CHARS - 3] + "..."


def _source_line(chain: Sequence[BaseException], folders: Sequence[str]) -> str:
    """Return the project's line that caused the error, such as `file.py:31`; "" if there is none.

    In order of preference: the line of a syntax error, the innermost frame, the line that created the graph's node.
    Generated code, whose file name is `<string>`, has no line in the project.
    """
    for find in (_syntax_error_lines, _frame_lines, _node_lines):
        for error in reversed(chain):
            for path, line in reversed(find(error)):
                relative = project_path(os.path.abspath(path), folders) if os.path.isfile(path) else None
                if relative is not None:
                    return f"{relative}:{line}"
    return ""


def _syntax_error_lines(error: BaseException) -> List[Tuple[str, int]]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return [(error.filename, error.lineno)]
    return []


def _frame_lines(error: BaseException) -> List[Tuple[str, int]]:
    return [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]


def _node_lines(error: BaseException) -> List[Tuple[str, int]]:
    """Return the lines of the FX node that was being translated. PyTorch stores them in the node, not in the error."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        trace = getattr(frame.f_locals.get("node"), "meta", {})
        trace = trace.get("stack_trace") if isinstance(trace, dict) else None
        if isinstance(trace, str):
            return [(path, int(line)) for path, line in _FRAME.findall(trace)]
    return []


class SourceResult(NamedTuple):
    """Return value of the user's callable. Each framework supports only some of the fields."""

    model: Any
    args: Any = None
    kwargs: Any = None
    input_names: Optional[Sequence[str]] = None
    output_names: Optional[Sequence[str]] = None
    dynamic_shapes: Any = None
    dynamic_axes: Any = None
    dynamo: bool = True
    options: Optional[Mapping[Any, Any]] = None
    opset_version: Any = None
    custom_translation_table: Optional[Mapping[Any, Any]] = None


def unexpected_return(source: str, problem: str) -> SourceError:
    """Return an error that describes the callable's return value and what is expected instead."""
    return SourceError(f"`{split_source(source)[1]}` returned {problem}")


def read_source_result(value: Any, source: str, expected: str, keys: Sequence[str]) -> SourceResult:
    """Parse `(model, args)`, or a mapping with `model` and any of `keys`.

    Raises:
        SourceError: the value has an unexpected form; the message contains `expected`.
    """
    if isinstance(value, tuple) and len(value) == 2:
        return SourceResult(*value)
    if not isinstance(value, Mapping):
        raise unexpected_return(source, f"{describe_value(value)}; expected {expected}")
    for key in value:
        if key not in ("model", *keys):
            near = difflib.get_close_matches(str(key), keys, 1, MIN_SIMILARITY)
            hint = f"did you mean `{near[0]}`?" if near else "known keys: " + ", ".join(dict.fromkeys(("model", *keys)))
            raise unexpected_return(source, f"a mapping with unknown key `{key}`; {hint}")
    if "model" not in value:
        raise unexpected_return(source, f"a mapping without `model`; expected {expected}")
    recipe = SourceResult(**value)
    for key in ("input_names", "output_names"):
        names = getattr(recipe, key)
        if names is not None and (not isinstance(names, (list, tuple)) or not all(isinstance(e, str) for e in names)):
            raise unexpected_return(source, f"{describe_value(names)} as `{key}`; expected a list of names")
    return recipe


def check_name_count(count: int, names: Optional[Sequence[str]], what: str, source: str) -> None:
    """Raise `SourceError` if names are given and their number is not `count`."""
    if names is not None and len(names) != count:
        raise unexpected_return(source, f"{pluralize(len(names), 'name')} in `{what}`; the model has {count}")


def pluralize(number: int, noun: str) -> str:
    """Return a count and its noun, such as `1 input` or `2 inputs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_value(value: Any) -> str:
    """Describe a value in a message."""
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else describe_type(value)


def describe_type(value: Any) -> str:
    """Describe the type of a value in a message."""
    return "None" if value is None else f"a value of type `{type(value).__name__}`"
