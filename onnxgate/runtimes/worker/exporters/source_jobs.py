"""Jobs of sources of any framework: export, user inputs, and versions."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple

from .. import versions
from . import source
from .export_result import empty_result, installed_versions, require_converters
from .source import SourceError, load_callable, split_source
from .source_errors import flush_output, run_user_code

Phase = Callable[[str], None]
Wire = Dict[str, Any]

PRELOADED_MODULES = ("numpy", "onnx", "onnxscript")
"""Modules that exporters import, which a user's file of the same name must not replace."""


class Framework(NamedTuple):
    """One exporter: the framework's name in messages, the packages of its classes, and its converters."""

    title: str
    module: str
    packages: List[str]
    converters: List[str]  # modules, named as their packages


FRAMEWORKS = (
    Framework("PyTorch", "pytorch", ["torch"], []),  # it reports missing packages itself
    Framework("XGBoost", "xgboost", ["xgboost"], ["skl2onnx", "onnxmltools", "packaging"]),
    Framework("LightGBM", "lightgbm", ["lightgbm"], ["skl2onnx", "onnxmltools", "packaging"]),
    Framework("scikit-learn", "sklearn", ["sklearn"], ["skl2onnx"]),
    Framework("Keras", "keras", ["keras", "tf_keras"], []),  # the converter depends on its backend
    Framework("TensorFlow", "tensorflow", ["tensorflow"], ["tf2onnx"]),
    Framework("JAX", "jax", ["jax", "jaxlib", "flax", "equinox"], ["jax2onnx"]),
)
"""onnxmltools imports packaging without requiring it. Source: its release 1.16."""


def export(job: Wire, phase: Phase) -> Wire:
    """Answer an `Export` job with an `ExportResult`; it includes errors of the user's code or the exporter."""
    result = empty_result()
    source.choose_seed(job.get("seed", source.DEFAULT_SEED))
    _preload_modules()
    with run_user_code(job, result):
        returned = _call_source(job, phase)
        found = find_framework(returned, job["source"])
        framework = importlib.import_module("." + found.module, __package__)
        result["packages"] = installed_versions(framework.PACKAGES)
        if job["export"]:
            require_converters(found.title, found.converters)
        framework.answer(job, returned, result, phase)
    return result


def _preload_modules() -> None:
    """Import modules of the exporters before a user's file of the same name (`onnx.py`) can replace them."""
    for name in PRELOADED_MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # the exporter reports it later
            pass


def _call_source(job: Wire, phase: Phase) -> Any:
    phase("import of the source")
    source.seed_generators()
    build = load_callable(job["source"])
    phase("call of the source")
    source.seed_generators()
    return build()


def find_framework(returned: Any, source: str) -> Framework:
    """Return the framework of the model that a source returned. Raises `SourceError` if there is none."""
    for value in _candidate_models(returned):
        for framework in FRAMEWORKS:
            if _framework_package(value) in framework.packages:
                return framework
    imported = [each for each in FRAMEWORKS if any(name in sys.modules for name in each.packages)]
    if len(imported) == 1:  # its exporter has the best error message
        return imported[0]
    known = ", ".join(each.title for each in FRAMEWORKS)
    raise SourceError(
        "`{}` returned {}, which is no model of {}; expected `(model, inputs)` or a mapping with `model` "
        "and `args`".format(split_source(source)[1], _describe_returned(returned), known)
    )


def _candidate_models(returned: Any) -> Iterator[Any]:
    """Yield values that may be the model, best first: the value, its elements, and theirs."""
    level = [returned]
    for _ in range(3):
        yield from level
        level = [part for value in level for part in _contained_values(value)]


def _contained_values(value: Any) -> List[Any]:
    if isinstance(value, Mapping):
        first = [value["model"]] if "model" in value else []
        return first + list(value.values())
    return list(value) if type(value) in (tuple, list) else []


def _framework_package(value: Any) -> str:
    """Return the first package of a framework that the value's class or one of its bases comes from."""
    known = {name for framework in FRAMEWORKS for name in framework.packages}
    packages = (str(each.__module__).partition(".")[0] for each in type(value).__mro__)
    return next((package for package in packages if package in known), "")


def _describe_returned(value: Any) -> str:
    if isinstance(value, tuple):
        return "a tuple of {}".format(len(value))
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)


MAX_CASES = 100
"""Maximum number of cases: a generator may have no end."""


def load_inputs(job: Wire, phase: Phase) -> Wire:
    """Answer an `Inputs` job with an `InputsResult`; it includes errors of the user's code."""
    result: Wire = {"kind": "inputs", "cases": [], "failure": None}
    with run_user_code(job, result):
        _collect_cases(job, result, phase)
    return result


def _collect_cases(job: Wire, result: Wire, phase: Phase) -> None:
    phase("import of the inputs")
    import numpy  # noqa: F401 - before a user's file of the same name can replace it

    source.seed_generators()
    called = load_callable(job["source"])
    phase("call of the inputs")
    source.seed_generators()
    name = "`{}`".format(split_source(job["source"])[1])
    given = called()
    if isinstance(given, Mapping) or not hasattr(given, "__iter__"):
        raise SourceError(
            "{} returned {}; expected a list of mappings of names to arrays".format(name, _describe_value(given))
        )
    for index, case in enumerate(given):
        if index == MAX_CASES:
            raise SourceError("{} gives more than {} cases; end it earlier".format(name, MAX_CASES))
        if not isinstance(case, Mapping):
            raise SourceError(
                "case {} of {} is {}; expected a mapping of names to arrays".format(index, name, _describe_value(case))
            )
        result["cases"].append(
            _save_case(case, os.path.join(job["output"], str(index)), "case {} of {}".format(index, name))
        )
    if not result["cases"]:
        raise SourceError("{} gives no case".format(name))


def _save_case(case: Mapping[Any, Any], folder: str, where: str) -> Dict[str, str]:
    import numpy

    os.makedirs(folder)
    paths = {}
    for number, (name, value) in enumerate(case.items()):
        if not isinstance(name, str):
            raise SourceError("{} has the name `{}`; expected the name of an input".format(where, name))
        path = os.path.join(folder, "{}.npy".format(number))
        numpy.save(path, _to_array(value, "`{}` in {}".format(name, where)), allow_pickle=False)
        paths[name] = path
    return paths


def _to_array(value: Any, where: str) -> Any:
    """Convert a tensor of any framework, or a value that numpy converts to numbers or strings."""
    import numpy

    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        array = numpy.asarray(value)
    except Exception as error:  # noqa: BLE001 - a bfloat16 tensor, a ragged list
        raise SourceError("{} is no array: {}".format(where, error)) from error
    if array.dtype.kind == "O":
        if not all(isinstance(each, str) for each in array.flat):
            raise SourceError("{} is no array of numbers or words, but {}".format(where, _describe_value(value)))
        array = array.astype(numpy.str_)
    return array


def _describe_value(value: Any) -> str:
    return "None" if value is None else "a value of type `{}`".format(type(value).__name__)


def probe(job: Dict[str, Any], phase: Callable[[str], None]) -> Dict[str, Any]:
    """Return versions, after importing each requested exporter; import errors are reported by a later export."""
    for name in (*PRELOADED_MODULES, *job["exporters"]):
        phase("import of " + name)
        try:
            importlib.import_module(name)
            _WARM_UPS.get(name, _skip_warm_up)()
        except Exception:  # noqa: BLE001 - a later export reports the error
            pass
    flush_output()
    return versions.probe_versions(job, phase)


def _skip_warm_up() -> None:
    return None


def _warm_up_pytorch() -> None:
    """Initialise the exporter's operators, which takes 1.9 s of 2.4 s on one small model. Source: torch 2.13."""
    import torch

    torch.onnx.export(torch.nn.Identity(), (torch.zeros(1),), io.BytesIO(), dynamo=True, verbose=False)


_WARM_UPS = {"torch": _warm_up_pytorch}
