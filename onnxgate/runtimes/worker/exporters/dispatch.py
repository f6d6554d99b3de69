"""Any source: imported and called once, then handed to the exporter of the framework that it returned a model of."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple

from . import seeding
from .hearing import heard
from .results import need, nothing, versions
from .source import SourceError, load, split

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PREPARED = ("numpy", "onnx", "onnxscript")
"""What the exporters need, and a file of the user's own may be called."""


class Framework(NamedTuple):
    """One exporter: how messages call the framework, the packages that its classes come from, and its converters."""

    title: str
    module: str
    packages: List[str]
    converters: List[str]  # modules, called as the packages that have them


FRAMEWORKS = (
    Framework("PyTorch", "pytorch", ["torch"], []),  # says itself what it lacks
    Framework("XGBoost", "xgboost", ["xgboost"], ["skl2onnx", "onnxmltools", "packaging"]),
    Framework("LightGBM", "lightgbm", ["lightgbm"], ["skl2onnx", "onnxmltools", "packaging"]),
    Framework("scikit-learn", "sklearn", ["sklearn"], ["skl2onnx"]),
    Framework("Keras", "keras", ["keras", "tf_keras"], []),  # which converter it needs depends on its backend
    Framework("TensorFlow", "tensorflow", ["tensorflow"], ["tf2onnx"]),
    Framework("JAX", "jax", ["jax", "jaxlib", "flax", "equinox"], ["jax2onnx"]),
)
"""onnxmltools imports packaging and does not ask for it. Source: its release 1.16."""


def export(job: Wire, phase: Phase) -> Wire:
    """Answer an `Export` job with an `ExportResult`; what the user's code or the exporter says is inside it."""
    result = nothing()
    seeding.choose(job.get("seed", seeding.SEED))
    _put_out_of_reach()
    with heard(job, result):
        returned = _called(job, phase)
        found = find(returned, job["source"])
        framework = importlib.import_module("." + found.module, __package__)
        result["packages"] = versions(framework.PACKAGES)
        if job["export"]:
            need(found.title, found.converters)
        framework.answer(job, returned, result, phase)
    return result


def _put_out_of_reach() -> None:
    """Import what exporters need before a file of the user's own can stand for it (`onnx.py`)."""
    for name in PREPARED:
        try:
            importlib.import_module(name)
        except ImportError:  # the exporter says it in its own words
            pass


def _called(job: Wire, phase: Phase) -> Any:
    phase("import of the source")
    seeding.seed()
    build = load(job["source"])
    phase("call of the source")
    seeding.seed()
    return build()


def find(returned: Any, source: str) -> Framework:
    """The framework of what a source returned. Raises `SourceError` where it is none's."""
    for value in _parts(returned):
        for framework in FRAMEWORKS:
            if _package(value) in framework.packages:
                return framework
    imported = [each for each in FRAMEWORKS if any(name in sys.modules for name in each.packages)]
    if len(imported) == 1:  # it says best what it expects
        return imported[0]
    known = ", ".join(each.title for each in FRAMEWORKS)
    raise SourceError(
        "`{}` returned {}, which is no model of {}; expected `(model, inputs)` or a mapping with `model` "
        "and `args`".format(split(source)[1], _kind(returned), known)
    )


def _parts(returned: Any) -> Iterator[Any]:
    """What may be the model, best first: the value, what it holds, and what that holds."""
    level = [returned]
    for _ in range(3):
        yield from level
        level = [part for value in level for part in _held(value)]


def _held(value: Any) -> List[Any]:
    if isinstance(value, Mapping):
        first = [value["model"]] if "model" in value else []
        return first + list(value.values())
    return list(value) if type(value) in (tuple, list) else []


def _package(value: Any) -> str:
    """The first package of a framework that the value's class or one of its bases comes from."""
    known = {name for framework in FRAMEWORKS for name in framework.packages}
    packages = (str(each.__module__).partition(".")[0] for each in type(value).__mro__)
    return next((package for package in packages if package in known), "")


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)
