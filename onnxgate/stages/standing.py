"""Which runtime others are held against."""

from __future__ import annotations

from packaging.version import Version

from onnxgate.config.engines import ENGINES, ONNXRUNTIME, engine_of, family_of
from onnxgate.findings import runtime_order


def standing(runtime: str) -> tuple[bool, int, Version]:
    """What to sort runtimes by: ONNX Runtime last, before it the engines that are known best; newer ones later."""
    engine = engine_of(runtime)
    known = ENGINES.index(engine) if engine in ENGINES else len(ENGINES)
    return is_onnxruntime(runtime), -known, runtime_order(runtime)[1]


def family(runtime: str) -> str:
    """The engine, whatever build of it."""
    return family_of(engine_of(runtime))


def is_onnxruntime(runtime: str) -> bool:
    """Whether it is ONNX Runtime, in whatever build."""
    return family(runtime) == ONNXRUNTIME
