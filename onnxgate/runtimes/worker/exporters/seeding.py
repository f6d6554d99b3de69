"""The generators of random numbers that a source may draw from, started from one state."""

from __future__ import annotations

import contextlib
import random
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Iterator, Optional, Sequence

SEED = 0
_chosen = [SEED]
_STARTS = {"numpy": "random.seed", "torch": "manual_seed", "tensorflow": "random.set_seed"}


def choose(number: int) -> None:
    """The state that all generators are started from, until the next choice."""
    _chosen[0] = number


def seed() -> None:
    """Start every generator that the standard library, numpy, PyTorch and TensorFlow share from the same state."""
    random.seed(_chosen[0])
    for name in _STARTS:
        _start(name)


def _start(name: str) -> None:
    part: Any = sys.modules.get(name)
    for attribute in _STARTS[name].split("."):
        part = getattr(part, attribute, None)
    if part is not None:
        part(_chosen[0])


class _Loader(SourceFileLoader):
    """Loads a framework, and starts its generator at once: a source may draw as soon as it has imported it."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _start(module.__name__)


class _Finder(MetaPathFinder):
    """Finds frameworks as they are found anyway."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(fullname) if fullname in _STARTS and path is None else None
        if spec is None or type(spec.loader) is not SourceFileLoader:
            return None
        spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


@contextlib.contextmanager
def on_import() -> Iterator[None]:
    """Inside, a framework that is imported for the first time is seeded too, as one that was there before is."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
