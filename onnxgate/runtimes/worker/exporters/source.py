"""Import and environment of the user's file, as for `python file.py`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import sys
import types
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

# Modules imported from the folder of one source. Two sources may have different `models.py` in their folders, and a
# module that registers an operator must not be imported twice in one process.
_imported: Dict[str, Dict[str, types.ModuleType]] = {}


class SourceError(Exception):
    """The source does not fit `source = "file.py:callable"`; the message describes what was expected."""


def split_source(source: str) -> Tuple[str, str]:
    """Return the file and the callable's name of `<file>.py:<callable>`."""
    file, _, name = source.rpartition(":")
    return os.path.abspath(file), name


def folders_of(job: Dict[str, Any]) -> Tuple[str, str]:
    """Return the folders of the project's code: the config's, and the source's, which may be outside it."""
    return job["folder"], os.path.dirname(split_source(job["source"])[0])


def load_callable(source: str) -> Callable[[], Any]:
    """Return the callable that `source` names. Call it inside `source_environment`."""
    file, name = split_source(source)
    if not os.path.isfile(file):
        raise SourceError("there is no file `{}`".format(os.path.basename(file)))
    module = _import_file(file)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SourceError("`{}` has no callable `{}`".format(os.path.basename(file), name))
    return found  # type: ignore[no-any-return]


def _import_file(file: str) -> types.ModuleType:
    name = _module_name(file)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SourceError("`{}` is no Python file".format(os.path.basename(file)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(file: str) -> str:
    """Return the file's stem, which the exporter writes into the model, or another name if a module has that one."""
    stem = os.path.splitext(os.path.basename(file))[0]
    known = sys.modules.get(stem)
    taken = stem in sys.builtin_module_names if known is None else getattr(known, "__file__", None) != file
    return "source_of_" + stem if taken else stem


@contextlib.contextmanager
def source_environment(file: str, folder: str) -> Iterator[None]:
    """Import modules and resolve paths as for `python file.py` started in `folder`; restore the state at the end."""
    beside = os.path.dirname(file)
    path, before, directory, argv = list(sys.path), dict(sys.modules), os.getcwd(), list(sys.argv)
    sys.modules.update(_imported.get(beside, {}))
    sys.path[:0] = [beside, folder]
    sys.argv[:] = [file]
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(directory)
        sys.path[:], sys.argv[:] = path, argv
        _imported[beside] = _remove_imported(before, (folder, beside))


def _remove_imported(before: Dict[str, types.ModuleType], folders: Tuple[str, ...]) -> Dict[str, types.ModuleType]:
    """Remove modules that were imported from the user's folders since `before`, and return them."""
    new = {name: module for name, module in sys.modules.items() if before.get(name) is not module}
    taken = {name: module for name, module in new.items() if _is_module_in(module, folders)}
    for name in taken:
        del sys.modules[name]
    return taken


def _is_module_in(module: Any, folders: Sequence[str]) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and project_path(file, folders) is not None


def project_path(path: str, folders: Sequence[str]) -> Optional[str]:
    """Return the path of a project file, relative to the first folder, with `/`; None for any other file.

    An environment may be inside a project: packages installed in it are not the project's.
    """
    real = [os.path.realpath(folder) for folder in folders]
    for each, roots in ((path, folders), (os.path.realpath(path), real)):
        for root in roots:
            if _contains_path(root, each) and not _is_installed(each, root):
                return os.path.relpath(each, roots[0]).replace(os.sep, "/")
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
    """Set the seed of all generators until the next call."""
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
    """Loads a framework and seeds its generator at once: a source may draw numbers right after the import."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _seed_framework(module.__name__)


class _SeedingFinder(MetaPathFinder):
    """Finds frameworks at their usual places."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(fullname) if fullname in _SEED_FUNCTIONS and path is None else None
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _SeedingLoader(spec.loader.name, spec.loader.path)
        return spec


@contextlib.contextmanager
def seed_on_import() -> Iterator[None]:
    """Seed each framework that is first imported in the block, as if it had been imported before."""
    finder = _SeedingFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
