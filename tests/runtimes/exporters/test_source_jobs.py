"""Framework-independent parts of the exporters."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxgate.core.jobs import ExportResult
from onnxgate.runtimes.worker import exporters
from onnxgate.runtimes.worker.exporters import eager, estimators, model_file, source, source_jobs
from tests.harness.models import parse

FRAMEWORKS = "PyTorch, scikit-learn, XGBoost, LightGBM, Keras, TensorFlow or JAX"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for sources, with all framework modules removed from `sys.modules`."""
    for name in list(sys.modules):
        if name.partition(".")[0] in {
            module for framework in exporters.FRAMEWORKS for module in (*framework.modules, *framework.class_modules)
        }:
            monkeypatch.delitem(sys.modules, name)
    return tmp_path


def export(project: Path, text: str, **job: Any) -> dict[str, Any]:
    """Return the result of exporting `m.py:build`."""
    (project / "m.py").write_text(dedent(text))
    (project / "out").mkdir(exist_ok=True)
    asked = {"source": f"{project / 'm.py'}:build", "folder": str(project), "output": str(project / "out")}
    usual = {"opset": None, "ir_version_max": None, "cases": [], "export": True, "float64": True, "eager": True}
    return source_jobs.export({**asked, **usual, **job}, lambda _: None)


def failure(result: dict[str, Any]) -> tuple[str, str]:
    """Return the exception class and the text of the failure."""
    return result["failure"]["type"], result["failure"]["text"]


LAZY = """
def __getattr__(name):
    try:
        raise RuntimeError("operator torchvision::nms does not exist")
    except RuntimeError as error:
        raise ModuleNotFoundError(f"Could not import module '{name}'. Are its requirements correct?") from error
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "from lazy_package import BertModel",
            ("RuntimeError", "operator torchvision::nms does not exist", "lazy_package.py:4"),
        ),
        ("import not_there_at_all", ("ModuleNotFoundError", "No module named 'not_there_at_all'", "m.py:2")),
        (
            "try: {}['a.pt']\n    except KeyError as error: raise ValueError('unknown checkpoint') from error",
            ("ValueError", "unknown checkpoint (caused by KeyError: 'a.pt')", "m.py:2"),
        ),
        (
            "try: {}['a.pt']\n    except KeyError: raise ValueError('unknown checkpoint')",
            ("ValueError", "unknown checkpoint", "m.py:3"),
        ),
        (
            "try: import not_there_at_all\n    except ImportError: raise ImportError('run `pip install x`')",
            (
                "ImportError",
                "run `pip install x` (caused by ModuleNotFoundError: No module named 'not_there_at_all')",
                "m.py:2",
            ),
        ),
        ("exec('raise ValueError(3)')", ("ValueError", "3", "m.py:2")),
        ("import collections; collections.namedtuple('P', 'x')()", ("TypeError", "", "m.py:2")),
    ],
)
def test_cause_and_place_of_an_error(project: Path, body: str, expected: tuple[str, str, str]) -> None:
    """The root cause is named, and the place is a line of the user's file even if generated code failed."""
    (project / "lazy_package.py").write_text(LAZY)
    result = export(project, f"def build():\n    {body}\n")["failure"]

    assert (result["type"], result["source"]) == (expected[0], expected[2])
    assert expected[1] in result["text"]
    assert not expected[1] or result["text"] == expected[1]


@pytest.mark.parametrize(
    ("returned", "what"),
    [("None", "None"), ("(print, 1, 2)", "a tuple of 3"), ("{'model': 3}", "a value of type `dict`")],
)
def test_source_without_a_framework(project: Path, returned: str, what: str) -> None:
    """The message names all supported frameworks."""
    assert failure(export(project, f"def build():\n    return {returned}\n")) == (
        "SourceError",
        f"`build` returned {what}, which is not a {FRAMEWORKS} model; "
        "expected `(model, inputs)` or a mapping with `model` and `args`",
    )


@pytest.mark.parametrize(
    ("package", "title", "missing"),
    [
        ("sklearn", "scikit-learn", "skl2onnx"),
        ("tensorflow", "TensorFlow", "tf2onnx"),
        ("jaxlib", "JAX", "jax2onnx"),
    ],
)
def test_converter_that_is_not_installed(project: Path, package: str, title: str, missing: str) -> None:
    """The message names the converter to install. The framework is identified by the package of the model's class."""
    (project / f"{package}.py").write_text("class Model:\n    pass\n")
    result = export(project, f"import {package}\ndef build():\n    return [1, {package}.Model()], 2\n")

    assert failure(result) == (
        "ConverterMissingError",
        f"exporting {title} models requires `{missing}`; "
        f"run `pip install {missing}` in the environment that exports the models",
    )


def test_class_of_ones_own(project: Path) -> None:
    """The framework of a derived class is the first one among its base classes."""
    (project / "sklearn.py").write_text("class Base:\n    pass\n")
    (project / "xgboost.py").write_text("from sklearn import Base\nclass Boosted(Base):\n    pass\n")
    result = export(
        project, "import xgboost\nclass Mine(xgboost.Boosted):\n    pass\ndef build():\n    return {'model': Mine()}\n"
    )

    assert failure(result)[1].startswith("exporting XGBoost models requires `skl2onnx` and `onnxmltools`")


def test_framework_is_seeded_when_it_is_imported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random values drawn during import do not depend on whether the framework was imported before."""
    lent = project / "lent"
    lent.mkdir()
    (lent / "torch.py").write_text("seeds = []\nmanual_seed = seeds.append\n")
    monkeypatch.syspath_prepend(str(lent))
    text = "import torch\nFIRST = list(torch.seeds)\ndef build():\n    raise ValueError(str(FIRST))\n"

    assert failure(export(project, text, seed=7)) == ("ValueError", "[7]")


def test_seed_of_the_job() -> None:
    """The generators of the standard library and numpy start from the job's seed."""
    drawn = []
    for number in (1, 1, 2):
        source.choose_seed(number)
        source.seed_generators()
        drawn.append((random.random(), np.random.random()))

    assert drawn[0] == drawn[1] != drawn[2]


def case(folder: Path, **inputs: Any) -> dict[str, Any]:
    """Return a case with these arrays."""
    paths = {}
    for name, value in inputs.items():
        paths[name] = str(folder / f"{name}.npy")
        np.save(paths[name], value)
    return {"name": "c", "inputs": paths}


def run(folder: Path, call: eager.ArrayCall, *cases: dict[str, Any], wide: Any = None) -> dict[str, Any]:
    """Return the result of running a call on the cases."""
    result: dict[str, Any] = {"kind": "export", "model": None}
    job = {"cases": cases, "output": str(folder), "float64": True, "source": "m.py:build", "folder": str(folder)}
    eager.run_cases(job, call, result, lambda _: None, wide)
    return json.loads(msgspec.json.encode(msgspec.convert(result, ExportResult)))


def outputs(actual: dict[str, Any]) -> list[Any]:
    """Return the output arrays of one case."""
    assert actual["failure"] is None
    return [np.load(path) for path in actual["outputs"]]


FLOAT = np.dtype("float32")


def test_cases_by_name_and_sample(tmp_path: Path) -> None:
    """Inputs are matched by name, the sample is the last case, and float64 inputs are cast to float32."""
    call = eager.ArrayCall(lambda v: [v[0] - v[1]], ["a", "b"], [FLOAT, FLOAT], [np.float32([9]), np.float32([2])])
    result = run(tmp_path, call, case(tmp_path, b=np.float32([1]), a=np.float64([5])))

    assert [outputs(each)[0].tolist() for each in result["eager"]] == [[4], [7]]
    assert outputs(result["eager"][0])[0].dtype == FLOAT
    assert [np.load(path).tolist() for path in result["sample"]] == [[9], [2]]


def test_another_number_of_inputs(tmp_path: Path) -> None:
    """No case is run, and the reason is reported."""
    call = eager.ArrayCall(lambda v: v, ["a", "b"], [FLOAT, FLOAT])
    result = run(tmp_path, call, case(tmp_path, a=np.float32([1])))

    assert (result["eager"], result["eager_reason"]) == ([], "the source has 2 inputs, but the model has 1")


def test_another_type(tmp_path: Path) -> None:
    """A string passed to a numeric input fails its case with a message."""
    call = eager.ArrayCall(lambda v: v, ["a"], [FLOAT])
    result = run(tmp_path, call, case(tmp_path, a=np.array(["x"])))

    assert result["eager"][0]["failure"]["text"] == "an input has type float32 in the source, but <U1 in the model"


@pytest.mark.parametrize(
    ("job", "time_s", "runs"),
    [
        ({"float64": True, "export": True}, 9.0, True),
        ({"float64": True, "export": True}, 11.0, False),
        ({"float64": True, "export": False}, 11.0, True),
        ({"float64": False, "export": False}, 9.0, False),
    ],
)
def test_slow_sources_run_in_float64_only_if_this_is_all_that_is_requested(
    job: dict[str, bool], time_s: float, *, runs: bool
) -> None:
    """A float64 run takes several times as long as the other runs, and must not exceed the time limit of an export."""
    assert runs == eager.runs_in_float64(job, time_s)


@pytest.mark.parametrize(("dtype", "runs"), [("float64", 1), ("float32", 0)])
def test_float32_source_has_no_float64_outputs(tmp_path: Path, dtype: str, runs: int) -> None:
    """A source that computes in float32 internally has no float64 outputs, because they would not be more precise."""
    call = eager.ArrayCall(lambda v: v, ["a"], [FLOAT])
    result = run(tmp_path, call, case(tmp_path, a=np.float32([1])), wide=lambda v: [v[0].astype(dtype)])

    assert len(result["eager64"]) == runs


@pytest.mark.parametrize(
    ("value", "shape", "signs", "expected"),
    [
        ([1.5, 2.5], [None, 1], "", [[1.5], [2.5]]),
        ([1.5], [None, 2], "-+", [[-1.5, 1.5]]),
        ([1.5], [None, 2], "+-", [[1.5, -1.5]]),
        ([1.5], [None, 2], "+", [[1.5]]),
        ([1.5], [None], "-+", [1.5]),
    ],
)
def test_shape_of_the_graph(value: list[float], shape: list[Any], signs: str, expected: list[Any]) -> None:
    """Vectors of scikit-learn are columns in the graph; the score of a binary classifier may become two columns."""
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    actual = estimators.reshape_result(np.array(value), output, signs)

    assert (actual.tolist(), actual.dtype) == (expected, FLOAT)


def test_words_stay_words() -> None:
    """String outputs stay strings."""
    output = helper.make_tensor_value_info("y", TensorProto.STRING, [None])

    assert estimators.reshape_result(np.array(["a", "bc"]), output).tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    ("output", "methods", "raw", "expected"),
    [
        ("probabilities", ("predict_proba", "decision_function"), False, "predict_proba"),
        ("probabilities", ("predict_proba", "decision_function"), True, "decision_function"),
        ("probabilities", ("decision_function",), False, "decision_function"),
        ("scores", ("transform", "decision_function"), False, "transform"),
        ("variable", ("transform",), False, "transform"),
        ("decision_path", ("predict",), False, None),
    ],
)
def test_method_of_an_output(output: str, methods: tuple[str, ...], raw: bool, expected: str | None) -> None:
    """The output's name determines the method that computes it; other names have no method."""
    assert estimators.find_method(output, SimpleNamespace(**dict.fromkeys(methods)), raw) == expected


def test_renamed_outputs() -> None:
    """An output is renamed everywhere in the graph, including subgraphs that use it."""
    model = parse(
        "g (bool b, float[2] x) => (float[2] y, float[2] z) { y = Neg (x)"
        " z = If (b) <then_branch = t () => (float[2] t)"
        " { t = Abs (y) }, else_branch = e () => (float[2] e) { e = Exp (y) }> }"
    )
    model_file.rename_outputs(model.graph, {"y": "score"})

    assert [output.name for output in model.graph.output] == ["score", "z"]
    assert model.graph.node[0].output[0] == "score"
    assert {attribute.g.node[0].input[0] for attribute in model.graph.node[1].attribute} == {"score"}
