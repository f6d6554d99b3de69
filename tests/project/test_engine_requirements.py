"""Validation of requirements without an index."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from onnxgate.core.text import join_quoted
from onnxgate.project.engines import ENGINES, is_satisfiable, requirement_problem, runtime_problem


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        ("", True),
        (">=1.18,<1.32", True),
        (">=1.20,<1.18", False),
        (">=1.18,<1.18", False),
        (">=1.18,<=1.18", True),
        (">1.18,<1.18.1", True),
        (">1.18,<=1.18", False),
        ("==1.18.*,!=1.18.*", False),
        (">=1.18,!=1.18.*,<1.19", False),
        (">=1.18,!=1.18.*,<2", True),
        (">=1.17,!=1.17.*,<1.19.5,!=1.19.*", True),
        ("~=1.18.2,<1.18.2", False),
        (">1.18,<1.20,!=1.19.*", True),
        ("~=1.18.2", True),
        ("==1.18.1,==1.18.2", False),
        ("==1.18.1,==1.18.*", True),
        ("<0", False),
        (">=1!1.0,<2!0", True),
        (">=1!1.0,<5", False),
        ("===custom", True),
        (">1!1.0", True),
        (">=1.0rc1,<1.0", False),
        (">=1.0rc1,<1.0rc3", True),
    ],
)
def test_satisfiable(specifier: str, expected: bool) -> None:
    """A specifier is satisfiable if at least one version can match it."""

    assert expected == is_satisfiable(SpecifierSet(specifier))


RELEASES = [f"{a}.{b}.{c}" for a, b, c in itertools.product(range(3), range(4), range(3))]
NEEDS_PYTHON = (
    "needs special hardware or drivers, so onnxgate does not create an environment for it; set `python` to your own "
    'environment with this package (`python = ".venv"`), and set `required = false` if some machines do not have this '
    "environment"
)
clauses = st.tuples(st.sampled_from([">=", "<=", ">", "<", "==", "!="]), st.sampled_from(RELEASES)).map("".join)


@given(st.lists(clauses, min_size=1, max_size=4).map(",".join))
def test_never_refuses_what_a_release_satisfies(specifier: str) -> None:
    """A range that contains a release is never reported as unsatisfiable."""
    wanted = SpecifierSet(specifier)

    assert is_satisfiable(wanted) or not any(wanted.contains(release) for release in RELEASES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("onnxruntime>=1.18,<1.32", ""),
        ("ONNXRuntime == 1.18.*", ""),
        ("onnxruntime>=1.20,<1.18", "no release can satisfy `<1.18,>=1.20`"),
        ("onnxruntime=1.18", "`onnxruntime=1.18` is not a valid requirement; did you mean `onnxruntime==1.18.*`?"),
        ("", "expected a requirement such as `onnxruntime>=1.18,<1.32`, got ``"),
        ("openvino>=2026", ""),
        ("onnx>=1.18", ""),
        ("OpenCV_Python_Headless==5.*", ""),
        ("onnxruntime-gpu>=1.23", f"`onnxruntime-gpu` {NEEDS_PYTHON}"),
        ("onnxruntime-openvino==1.24.1", f"`onnxruntime-openvino` {NEEDS_PYTHON}"),
        (
            "tensorrt>=10",
            'TensorRT is used through ONNX Runtime: set `runtime = "onnxruntime-gpu>=1.23"`, '
            '`providers = ["TensorrtExecutionProvider"]`, '
            "and `python` to an environment with onnxruntime-gpu and TensorRT",
        ),
        ("1.18", "`1.18` is not a valid requirement; did you mean `onnxruntime==1.18.*`?"),
        (">=1.18", "`>=1.18` is not a valid requirement; did you mean `onnxruntime>=1.18`?"),
        ("onnxrutime>=1.23", "unknown engine `onnxrutime`; did you mean `onnxruntime`?"),
        ("opencv>=4", "unknown engine `opencv`; did you mean `opencv-python-headless`?"),
        ("opencv-python", "unknown engine `opencv-python`; did you mean `opencv-python-headless`?"),
        ("onnxruntime-gpuu", "unknown engine `onnxruntime-gpuu`; did you mean `onnxruntime-gpu`?"),
        ("caffe", f"unknown engine `caffe`; expected one of {join_quoted(ENGINES)}"),
        ("onnxruntime[gpu]", "expected an engine and a version range, without extras or markers"),
        ("onnxruntime; python_version > '3'", "expected an engine and a version range, without extras or markers"),
        ("onnxruntime @ file:///x.whl", "expected a package name with a version range, got a URL"),
    ],
)
def test_runtime(text: str, expected: str) -> None:
    """Valid runtime requirements are accepted, and each invalid one is reported with a reason."""

    assert expected == runtime_problem(text)


@pytest.mark.parametrize(("text", "takes"), [("onnxruntime-gpu", True), ("openvino", True), ("tensorrt", False)])
def test_own_runtime(text: str, takes: bool) -> None:
    """With a user environment, builds that onnxgate does not install are accepted, but unknown engines are not."""

    assert takes == (runtime_problem(text, own=True) == "")


def test_toolchain() -> None:
    """A toolchain requirement may name any package and have markers."""

    assert requirement_problem("torch==2.13.*; python_version < '3.13'") == ""
