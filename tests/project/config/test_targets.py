"""Extensions and user environments of a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError
from onnxgate.project.config.loader import load_config
from onnxgate.project.engines import is_library, package_name

LIBRARY = "expected a library (`.so`, `.dll` or `.dylib`) or a package"
OTHER = "python = '.venv'\n[targets.b]\nruntime = 'onnxruntime'\npython = '.venv'\nproviders = ['XExecutionProvider']"


def problems(folder: Path, target: str) -> list[str]:
    """Return the problems of a target, without the key path of the target itself."""
    text = f"[targets.a]\nruntime = 'onnxruntime'\n{target}\n"
    (folder / "onnxgate.toml").write_text(text, encoding="utf-8")
    try:
        load_config(folder / "onnxgate.toml")
    except ConfigError as error:
        return [problem.removeprefix("line 3: `targets.a.") for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "target",
    [
        "extensions = []",
        "extensions = ['onnxruntime-extensions>=0.13', 'libs/foo.so', 'foo.DLL', 'a/libfoo.dylib']",
        "python = '.venv'",
        "python = '.venv'\nproviders = ['CUDAExecutionProvider', 'CPUExecutionProvider']",
        "python = '.venv'\nextensions = ['foo']\n[targets.b]\nruntime = 'onnxruntime'\npython = '.venv'",
    ],
)
def test_supported_libraries_are_accepted(tmp_path: Path, target: str) -> None:
    """Packages, libraries inside the project, and custom builds with any provider are accepted."""

    assert problems(tmp_path, target) == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("extensions = 'foo'", "extensions`: expected a list of strings, got the string `foo`"),
        (
            "extensions = ['numpy']",
            "extensions[0]`: remove `numpy`: this package does not register custom operators",
        ),
        (
            "extensions = ['a b']",
            "extensions[0]`: expected a requirement such as `onnxruntime-extensions>=0.13`, got `a b`",
        ),
        ("extensions = ['foo>=2,<1']", "extensions[0]`: no release can satisfy `<1,>=2`"),
        (
            "extensions = ['foo[bar]']",
            "extensions[0]`: expected a package and a version range, without extras or markers",
        ),
        ("extensions = ['libs/foo']", f"extensions[0]`: {LIBRARY}, got `libs/foo`"),
        ("extensions = ['libs\\foo.dll']", "extensions[0]`: expected a path with `/`, got `libs\\foo.dll`"),
        (
            "extensions = ['/foo.so']",
            "extensions[0]`: expected a path relative to the config's folder, got `/foo.so`",
        ),
        (
            "extensions = ['C:/foo.dll']",
            "extensions[0]`: expected a path relative to the config's folder, got `C:/foo.dll`",
        ),
        ("extensions = ['../foo.so']", "extensions[0]`: `../foo.so` is outside the project"),
        ("extensions = ['foo', 'Foo>1']", "extensions[1]`: `Foo>1` repeats `foo`, which is already listed as `foo`"),
        ("python = ''", "python`: expected an interpreter or the folder of an environment"),
        (
            "python = '.venv'\nselect = 'all'",
            "line 4: `targets.a.select`: `all` has no effect with `python`: an environment contains only one release",
        ),
        (
            "providers = ['CUDAExecutionProvider']",
            "providers[0]`: provider `CUDAExecutionProvider` is not available in the environments that onnxgate "
            "creates; set `python` to an environment that contains this provider",
        ),
        (
            "python = '.venv'\nproviders = ['CPUExecutionProvidr']",
            "line 4: `targets.a.providers[0]`: expected a name such as `CUDAExecutionProvider`, "
            "got `CPUExecutionProvidr`; did you mean `CPUExecutionProvider`?",
        ),
        (
            OTHER,
            "line 7: `targets.b.providers`: target `a` uses `.venv` with different providers; use the "
            "same providers for both targets",
        ),
    ],
)
def test_refused(tmp_path: Path, target: str, expected: str) -> None:
    """Settings that name nothing, or that onnxgate could not honor, are rejected."""

    assert problems(tmp_path, target) == [expected]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("runtime = 'openvino>=2026'", []),
        ("runtime = 'tract'\noptimization = ['all']", []),
        ("runtime = 'onnxruntime-gpu'\npython = '.venv'\nproviders = ['TensorrtExecutionProvider']", []),
        (
            "runtime = 'openvino'\nproviders = ['CUDAExecutionProvider']",
            ["line 3: `targets.a.providers`: `openvino` has no execution providers; remove the key"],
        ),
        (
            "runtime = 'tract'\nextensions = ['foo']\noptimization = ['disabled']",
            [
                "line 3: `targets.a.extensions`: `tract` does not load custom operator libraries; remove the key",
                "line 4: `targets.a.optimization`: `tract` has no optimization levels; remove the key",
            ],
        ),
    ],
)
def test_engines(tmp_path: Path, target: str, expected: list[str]) -> None:
    """Keys that an engine does not support are rejected for its targets."""
    (tmp_path / "onnxgate.toml").write_text(f"[targets.a]\n{target}\n", encoding="utf-8")
    actual: tuple[str, ...] = ()
    try:
        load_config(tmp_path / "onnxgate.toml")
    except ConfigError as error:
        actual = error.problems

    assert list(actual) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("foo.so", True), ("libs/foo", True), ("libs\\foo", True), ("foo-extensions>=1.0", False), ("foo.sox", False)],
)
def test_is_library(text: str, expected: bool) -> None:
    """An extension that looks like a path is a library; any other extension is a package."""

    assert expected == is_library(text)


def test_package_name() -> None:
    """Package names are normalized before they are compared."""

    assert package_name("ONNXRuntime_Extensions >= 0.13") == "onnxruntime-extensions"
