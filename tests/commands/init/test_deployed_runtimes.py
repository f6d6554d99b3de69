"""ONNX Runtime releases that the files of a repository declare."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxgate.commands.init import deployed_runtimes
from onnxgate.commands.init.deployed_runtimes import Deployments, find_deployments


def find(folder: Path, **files: str) -> Deployments:
    """Write the files, whose names have `__` for `/` and `_dot_` for `.`, and read them."""
    paths = []
    for name, text in files.items():
        path = name.replace("__", "/").replace("_dot_", ".")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        paths.append(path)
    return find_deployments(folder, paths)


def read_packages(folder: Path, name: str, text: str) -> list[str]:
    """Read one file; return each package with its specifier and its line."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    deployments = find_deployments(folder, [name])

    assert deployments.problems == ()
    return [f"{it.package}{it.specifier}:{it.line}" for it in deployments.runtimes]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("requirements.txt", "numpy\nonnxruntime==1.18.1\n", ["onnxruntime==1.18.1:2"]),
        ("requirements-gpu.txt", "onnxruntime_gpu >=1.18, <2 ; python_version > '3.8'", ["onnxruntime-gpu>=1.18,<2:1"]),
        ("requirements/prod.txt", "ONNXRuntime~=1.18  # why", ["onnxruntime~=1.18:1"]),
        (
            "requirements.txt",
            "# compiled\nonnxruntime==1.18.1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n    # via app\n-e .\n",
            ["onnxruntime==1.18.1:2"],
        ),
        (
            "requirements.txt",
            "onnxruntime @ https://example.org/a/onnxruntime-1.18.1-cp311-cp311-x.whl",
            ["==1.18.1:1"],
        ),
        ("requirements.txt", "onnxruntime-extensions==0.13.0\nonnxruntime-tools\n", []),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a"]\n[project.optional-dependencies]\ngpu = [\n"onnxruntime-gpu>=1.18"]\n'
            '[dependency-groups]\ndev = [{include-group = "x"}, "onnxruntime"]\n',
            ["onnxruntime-gpu>=1.18:5", "onnxruntime:7"],
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\nonnxruntime = "^1.18"\n[tool.poetry.group.dev.dependencies]\n'
            'onnxruntime-gpu = { version = "~1.17.1", markers = "x" }\n',
            ["onnxruntime>=1.18,<2:2", "onnxruntime-gpu>=1.17.1,<1.18:4"],
        ),
        ("uv.lock", '[[package]]\nname = "onnxruntime"\nversion = "1.20.1"\n', ["onnxruntime==1.20.1:2"]),
        ("pylock.toml", '[[packages]]\nname = "onnxruntime"\nversion = "1.20.1"\n', ["onnxruntime==1.20.1:2"]),
        ("Pipfile", '[packages]\nonnxruntime = "*"\n', ["onnxruntime:2"]),
        ("Pipfile.lock", '{"default": {\n"onnxruntime": {"version": "==1.18.1"}}}', ["onnxruntime==1.18.1:2"]),
        ("Dockerfile", "FROM a\nRUN pip install onnxruntime==1.18.1 && ls", ["onnxruntime==1.18.1:2"]),
        ("Dockerfile.gpu", 'RUN ["pip", "install", "onnxruntime-gpu==1.18.1"]', ["onnxruntime-gpu==1.18.1:1"]),
        (
            "api.Dockerfile",
            "ARG V=1.18.1\nRUN apt x \\\n # note\n  && uv pip install 'onnxruntime==$V'",
            ["==1.18.1:2"],
        ),
        ("Dockerfile", "RUN conda install -y onnxruntime=1.17", ["onnxruntime==1.17.*:1"]),
        ("Dockerfile", "RUN npm i onnxruntime-node@1.20.1", ["onnxruntime-node==1.20.1:1"]),
        ("Dockerfile", "RUN pip install onnxruntime==${V:-1.19.2}", ["onnxruntime==1.19.2:1"]),
        ("Dockerfile", "COPY onnxruntime-1.18.1.whl /x\nRUN pip install -r requirements.txt", []),
        ("package.json", '{"dependencies": {\n"onnxruntime-web": "^1.20.1"}}', ["onnxruntime-web>=1.20.1,<2:2"]),
        (
            "package-lock.json",
            '{"packages": {"": {"dependencies": {"onnxruntime-web": "^1.17.0"}},\n'
            '"node_modules/onnxruntime-web": {"version": "1.20.1"}}}',
            ["onnxruntime-web==1.20.1:1"],
        ),
        ("tests/requirements.txt", "onnxruntime==1.18.1", []),
        ("setup.txt", "onnxruntime==1.18.1", []),
    ],
)
def test_files_that_declare_a_runtime(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    """Each file is parsed in its own syntax, and the line of the package is recorded."""
    runtimes = read_packages(tmp_path, name, text)

    assert len(runtimes) == len(expected)
    assert all(runtime.endswith(end) for runtime, end in zip(runtimes, expected, strict=True)), runtimes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.20.1", "==1.20.1"),
        ("=1.20.1", "==1.20.1"),
        ("v1.20.1", "==1.20.1"),
        ("^0.3.1", ">=0.3.1,<0.4"),
        ("~1.20", ">=1.20,<1.21"),
        ("1.20", "==1.20.*"),
        ("1.x", "==1.*"),
        ("1.20.x", "==1.20.*"),
        (">=1.18.0 <2.0.0", ">=1.18.0,<2.0.0"),
        (">= 1.18.0", ">=1.18.0"),
        ("1.18.0 - 1.20.1", ">=1.18.0,<=1.20.1"),
        ("latest", ""),
        ("*", ""),
    ],
)
def test_ranges_of_npm(tmp_path: Path, text: str, expected: str) -> None:
    """An npm range is converted to a Python specifier that matches the same releases."""
    (runtime,) = find(tmp_path, package_dot_json=f'{{"dependencies": {{"onnxruntime-node": "{text}"}}}}').runtimes

    assert runtime.specifier == expected


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("uv.lock", "[[package]\n", "uv.lock: not valid TOML: line 1"),
        ("pyproject.toml", "\xff[", "pyproject.toml: not valid TOML: line 1"),
        ("package.json", "{", "package.json: not valid JSON: expecting property name"),
        ("package.json", '{"dependencies": {"onnxruntime-web": "workspace:*"}}', "package.json:1: the version `work"),
        ("package.json", '{"dependencies": {"onnxruntime-web": "^1.18 || ^1.20"}}', "package.json:1: the version `^1"),
        ("pyproject.toml", '[tool.poetry.dependencies]\nonnxruntime = "^^1"', "pyproject.toml:2: the version `^^1`"),
        ("Dockerfile", "RUN pip install onnxruntime==$V", "Dockerfile:1: the version in `onnxruntime==$V` is only"),
        ("requirements.txt", "onnxruntime>2,<1", "requirements.txt:1: no release satisfies"),
        ("requirements.txt", "onnxruntime @ https://example.org/x.whl", "requirements.txt:1: the address"),
        ("Pipfile.lock", '{"default": ' + "[" * 100_000, "Pipfile.lock: "),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """A broken file is skipped with a reason; other files are still read."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "requirements-other.txt").write_text("onnxruntime==1.18.1", encoding="utf-8")
    deployments = find_deployments(tmp_path, [name, "requirements-other.txt"])

    assert [it.pin for it in deployments.runtimes] == ["1.18.1"]
    assert [text for text in deployments.problems if text.startswith(problem)] == list(deployments.problems)
    assert len(deployments.problems) == 1


@pytest.mark.parametrize(
    "text", ["[]", "1", '{"dependencies": []}', '{"packages": {"x": 1}}', '{"dependencies": {"a": {}}}']
)
def test_other_types_of_values_are_ignored(tmp_path: Path, text: str) -> None:
    """JSON files with another structure declare no runtimes."""
    for name in ("package.json", "package-lock.json", "Pipfile.lock"):
        assert read_packages(tmp_path, name, text) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A tracked file that was removed is reported."""
    assert find_deployments(tmp_path, ["uv.lock"]).problems == ("uv.lock: no such file or directory",)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFOs")
def test_files_that_are_not_regular_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a dangling link, a FIFO or a huge file with the name of a requirements file is skipped."""
    (tmp_path / "requirements-folder.txt").mkdir()
    (tmp_path / "requirements-link.txt").symlink_to("missing.txt")
    os.mkfifo(tmp_path / "requirements-pipe.txt")
    (tmp_path / "requirements-huge.txt").write_text("#" * 100, encoding="utf-8")
    monkeypatch.setattr(deployed_runtimes, "MAX_FILE_BYTES", 99)

    assert find_deployments(tmp_path, [path.name for path in tmp_path.iterdir()]).problems == (
        "requirements-folder.txt: is a directory",
        "requirements-huge.txt: larger than 99 bytes",
        "requirements-link.txt: dangling link",
        "requirements-pipe.txt: not a regular file",
    )


def test_a_pin_replaces_the_ranges_that_it_satisfies(tmp_path: Path) -> None:
    """A lock file applies to its folder and all subfolders, as in a uv workspace."""
    lock = '[[package]]\nname = "onnxruntime"\nversion = "1.20.1"\n'
    below = '[project]\ndependencies = ["onnxruntime>=1.18"]'
    other = '[project]\ndependencies = ["onnxruntime<1.20"]'
    deployments = find(tmp_path, uv_dot_lock=lock, a__pyproject_dot_toml=below, b__pyproject_dot_toml=other)

    assert [(it.file, it.specifier) for it in deployments.runtimes] == [
        ("uv.lock", "==1.20.1"),
        ("b/pyproject.toml", "<1.20"),
    ]


def test_a_dockerfile_does_not_use_a_lock_file(tmp_path: Path) -> None:
    """`pip install onnxruntime` installs the newest release, whatever a lock file contains."""
    deployments = find(tmp_path, requirements_dot_txt="onnxruntime==1.18.1", Dockerfile="RUN pip install onnxruntime")

    assert [it.file for it in deployments.runtimes] == ["Dockerfile", "requirements.txt"]
