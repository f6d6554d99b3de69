"""ONNX Runtime releases that the files of a repository declare."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxgate.commands.init import text_files
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
            '[dependency-groups]\nserver = [{include-group = "x"}, "onnxruntime"]\n',
            ["onnxruntime-gpu>=1.18:5", "onnxruntime:7"],
        ),
        (
            "pyproject.toml",
            '[tool.poetry.dependencies]\nonnxruntime = "^1.18"\n[tool.poetry.group.gpu.dependencies]\n'
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
        ("Dockerfile", "RUN mamba install conda-forge::onnxruntime=1.17.1", ["onnxruntime==1.17.1:1"]),
        ("prod-requirements.txt", "onnxruntime==1.18.1", ["onnxruntime==1.18.1:1"]),
        ("Dockerfile", "RUN pip install openvino==2025.1.0 tract", ["openvino==2025.1.0:1", "tract:1"]),
        ("requirements.txt", "openvino>=2025.1\ntract==0.23.9\n", ["openvino>=2025.1:1", "tract==0.23.9:2"]),
        ("Dockerfile", "RUN npm i onnxruntime-node@1.20.1", ["onnxruntime-node==1.20.1:1"]),
        ("Dockerfile", "RUN pip install onnxruntime==${V:-1.19.2}", ["onnxruntime==1.19.2:1"]),
        ("Dockerfile", "COPY onnxruntime-1.18.1.whl /x\nRUN pip install -r requirements.txt", []),
        ("package.json", '{"dependencies": {\n"onnxruntime-web": "^1.20.1"}}', ["onnxruntime-web>=1.20.1,<2:2"]),
        (
            "package-lock.json",
            '{"packages": {"": {"dependencies": {"onnxruntime-web": "^1.17.0"}},\n'
            '"node_modules/onnxruntime-web": {"version": "1.20.1"}}}',
            ["onnxruntime-web==1.20.1:2"],
        ),
        ("Dockerfile", "FROM mcr.microsoft.com/azureml/onnxruntime:v1.15.1 AS run\n", ["onnxruntime==1.15.1:1"]),
        (
            "Dockerfile",
            "ARG V=v1.15.1-cuda\nFROM --platform=x mcr.microsoft.com/azureml/onnxruntime:${V}",
            ["onnxruntime-gpu==1.15.1:2"],
        ),
        ("Dockerfile", "FROM python:3.11 AS onnxruntime\nFROM onnxruntime\n", []),
        (
            "setup.cfg",
            "[options]\ninstall_requires =\n    numpy\n    onnxruntime==1.18.1\n[options.extras_require]\n"
            "gpu = onnxruntime-gpu>=1.18\n",
            ["onnxruntime==1.18.1:4", "onnxruntime-gpu>=1.18:6"],
        ),
        (
            "setup.py",
            "from setuptools import setup\nNEEDS = ['numpy',\n 'onnxruntime==1.18.1']\n"
            "setup(install_requires=NEEDS, extras_require={'gpu': ['onnxruntime-gpu>=1.18', name]})\n",
            ["onnxruntime==1.18.1:3", "onnxruntime-gpu>=1.18:4"],
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


@pytest.mark.parametrize("name", ["environment.yml", "environment.yaml", "deploy/environment-gpu.yml"])
def test_conda_environment(tmp_path: Path, name: str) -> None:
    """Comments, quotes, channels and any indent are accepted, and other sections are skipped."""
    text = """\
name: "app"
channels: [conda-forge]
dependencies:  # deployed
- python=3.11
- "conda-forge::onnxruntime>=1.17,<1.20"  # why

- pip
- pip:
    - --extra-index-url https://example.org/simple
    - onnxruntime-gpu==1.18.1  # cuda
variables:
  - onnxruntime==1.0.0
"""

    assert read_packages(tmp_path, name, text) == ["onnxruntime>=1.17,<1.20:5", "onnxruntime-gpu==1.18.1:10"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("onnxruntime", ""),
        ("onnxruntime *", ""),
        ("onnxruntime=1.18.1", "==1.18.1"),
        ("onnxruntime=1.18", "==1.18.*"),
        ("onnxruntime=1.18.*", "==1.18.*"),
        ("onnxruntime==1.18.1", "==1.18.1"),
        ("onnxruntime 1.18.1", "==1.18.1"),
        ("onnxruntime 1.18*", "==1.18.*"),
        ("onnxruntime=1.18.1=py311h_0_cpu", "==1.18.1"),
        ("onnxruntime==1.18.1=*cuda*", "==1.18.1"),
        ("onnxruntime 1.18.1 py311h_0_cpu", "==1.18.1"),
        ("onnxruntime >=1.17, <2", ">=1.17,<2"),
        ("onnxruntime>=1.17,!=1.18.0", ">=1.17,!=1.18.0"),
        ("https://conda.example.org/main/linux-64::onnxruntime ~=1.18", "~=1.18"),
    ],
)
def test_versions_of_conda(tmp_path: Path, text: str, expected: str) -> None:
    """A version of conda is converted to a Python specifier that matches the same releases."""
    (runtime,) = find(tmp_path, environment_dot_yml=f"dependencies:\n  - {text}\n").runtimes

    assert (runtime.specifier, runtime.is_conda) == (expected, True)


def test_pip_replaces_a_package_of_conda(tmp_path: Path) -> None:
    """The `pip` list is installed last: its release is the one that is deployed."""
    text = "dependencies:\n  - onnxruntime=1.18.1\n  - pip:\n    - onnxruntime==1.19.2\n"
    deployments = find(tmp_path, environment_dot_yml=text)

    assert [(it.requirement, it.line, it.is_conda) for it in deployments.runtimes] == [
        ("onnxruntime==1.19.2", 4, False)
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dependencies: [onnxruntime=1.18.1]", "1: not read: `dependencies: [onnxruntime=1.18.1]`"),
        ("{dependencies: [onnxruntime=1.18.1]}", "1: not read: `{dependencies: [onnxruntime=1.18.1]}`"),
        ("dependencies:\n- sel(linux): onnxruntime", "2: not read: `- sel(linux): onnxruntime`"),
        ("dependencies:\n- {onnxruntime: 1.18.1}", "2: not read: `- {onnxruntime: 1.18.1}`"),
        ("dependencies:\n- onnxruntime={{ ort }}", "2: not read: `- onnxruntime={{ ort }}`"),
        ("dependencies:\n- *ort", "2: not read: `- *ort`"),
        ("dependencies:\n- pip: [onnxruntime]", "2: not read: `- pip: [onnxruntime]`"),
        ("dependencies:\n- pip:\n  - - onnxruntime", "3: not read: `- - onnxruntime`"),
        ("dependencies:\n- numpy\n    - onnxruntime", "3: not read: `- onnxruntime`"),
        ("dependencies:\n- numpy\n  onnxruntime", "3: not read: `onnxruntime`"),
        ("dependencies:\n{% if x %}\n- numpy", "2: not read: `{% if x %}`"),
        ('dependencies:\n- "onnx\\x72untime"', '2: not read: `- "onnx\\x72untime"`'),
        (
            "dependencies:\n- onnxruntime[version='>=1.18']",
            "2: `onnxruntime`: the version `[version='>=1.18']` is not supported",
        ),
        ("dependencies:\n- onnxruntime=1.17|1.18", "2: `onnxruntime`: the version `=1.17|1.18` is not supported"),
    ],
)
def test_unread_lines_of_conda_environment(tmp_path: Path, text: str, problem: str) -> None:
    """A line that may contain the runtime in another form of YAML is reported."""
    deployments = find(tmp_path, environment_dot_yml=text)

    assert deployments == Deployments(problems=(f"environment.yml:{problem}",))


def test_other_files_named_environment_are_ignored(tmp_path: Path) -> None:
    """Many tools have an `environment.yaml`."""
    assert read_packages(tmp_path, "environment.yaml", "name: prod\nhosts: [a]\n") == []


DEPLOYED, DEVELOPMENT = "onnxruntime==1.18.1\n", "onnxruntime==1.19.2\n"
DEV_GROUP = '[dependency-groups]\ndev = ["onnxruntime==1.19.2"]\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements-dev.txt", DEVELOPMENT),
        ("requirements_test.in", DEVELOPMENT),
        ("dev-requirements.txt", DEVELOPMENT),
        ("requirements/lint.txt", DEVELOPMENT),
        ("constraints-CI.txt", DEVELOPMENT),
        ("docs/requirements.txt", DEVELOPMENT),
        (".devcontainer/Dockerfile", "RUN pip install onnxruntime==1.19.2"),
        ("environment-dev.yml", "dependencies:\n- onnxruntime=1.19.2"),
        ("pyproject.toml", DEV_GROUP),
        ("pyproject.toml", '[project.optional-dependencies]\ntest = ["onnxruntime==1.19.2"]\n'),
        ("pyproject.toml", '[tool.poetry.group.dev.dependencies]\nonnxruntime = "1.19.2"\n'),
        ("Pipfile", '[dev-packages]\nonnxruntime = "==1.19.2"\n'),
        ("setup.cfg", "[options.extras_require]\ntest = onnxruntime==1.19.2\n"),
        ("setup.py", "setup(extras_require={'test': ['onnxruntime==1.19.2']})\n"),
        ("package.json", '{"devDependencies": {"onnxruntime-node": "1.19.2"}}'),
    ],
)
def test_development_dependencies_are_used_only_without_others(tmp_path: Path, name: str, text: str) -> None:
    """A development dependency is not deployed; it is better than no information."""
    for path, content in ((name, text), ("requirements.txt", DEPLOYED)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content, encoding="utf-8")
    both, only = find_deployments(tmp_path, [name, "requirements.txt"]), find_deployments(tmp_path, [name])

    assert [it.file for it in both.runtimes] == ["requirements.txt"]
    assert [it.file for it in both.ignored] == [name]
    assert [(it.file, it.is_for_development) for it in only.runtimes] == [(name, True)]
    assert only.ignored == ()


@pytest.mark.parametrize("name", ["requirements-device.txt", "latest/requirements.txt", "requirements-prod.txt"])
def test_development_words_are_whole_words(tmp_path: Path, name: str) -> None:
    """Only whole words mark a file as one of development."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(DEPLOYED, encoding="utf-8")
    (runtime,) = find_deployments(tmp_path, [name]).runtimes

    assert not runtime.is_for_development


@pytest.mark.parametrize(
    "text",
    [
        '[project.optional-dependencies]\na = ["onnxruntime-gpu"]\nb = ["onnxruntime==1.18.1"]\n'
        'c = ["onnxruntime==1.20.0"]',
        '[tool.poetry.dependencies]\na = "1"\nonnxruntime = "1.18.1"\nonnxruntime-gpu = {version = "1.20.0"}\n'
        '[tool.poetry.group.x.dependencies]\nonnxruntime = "1.20.0"',
    ],
)
def test_line_of_each_version(tmp_path: Path, text: str) -> None:
    """A package that a file declares twice has two lines."""
    lines = text.splitlines()
    runtimes = [it for it in find(tmp_path, pyproject_dot_toml=text).runtimes if it.package == "onnxruntime"]

    assert [it.pin for it in runtimes] == ["1.18.1", "1.20.0"]
    assert all(it.pin in lines[it.line - 1] and "gpu" not in lines[it.line - 1] for it in runtimes)


def test_development_pin_does_not_replace_deployed_range(tmp_path: Path) -> None:
    """The releases that are deployed are those of the range."""
    deployments = find(tmp_path, requirements_dot_txt="onnxruntime>=1.18", requirements_dev_dot_txt=DEVELOPMENT)

    assert [it.requirement for it in deployments.runtimes] == ["onnxruntime>=1.18"]


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
        (
            "package.json",
            '{"dependencies": {"onnxruntime-web": "workspace:*"}}',
            "package.json:1: `onnxruntime-web`: the v",
        ),
        (
            "package.json",
            '{"dependencies": {"onnxruntime-web": "^1.18 || ^1.20"}}',
            "package.json:1: `onnxruntime-web`: the v",
        ),
        ("pyproject.toml", '[tool.poetry.dependencies]\nonnxruntime = "^^1"', "pyproject.toml:2: `onnxruntime`: the v"),
        ("Dockerfile", "RUN pip install onnxruntime==$V", "Dockerfile:1: the version in `onnxruntime==$V` is only"),
        ("requirements.txt", "onnxruntime>2,<1", "requirements.txt:1: `onnxruntime`: no release satisfies"),
        (
            "requirements.txt",
            "onnxruntime @ https://example.org/x.whl",
            "requirements.txt:1: `onnxruntime`: the URL",
        ),
        (
            "Dockerfile",
            "FROM mcr.microsoft.com/azureml/onnxruntime:latest",
            "Dockerfile:1: the tag of the image `mcr.microsoft.com/azureml/onnxruntime:latest` does not",
        ),
        ("setup.cfg", "onnxruntime==1.17.3", "setup.cfg: not a valid INI file"),
        ("setup.py", "setup(", "setup.py: not valid Python"),
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
    monkeypatch.setattr(text_files, "MAX_FILE_BYTES", 99)

    assert find_deployments(tmp_path, [path.name for path in tmp_path.iterdir()]).problems == (
        "requirements-folder.txt: is a directory",
        "requirements-huge.txt: larger than 99 bytes",
        "requirements-link.txt: broken symbolic link",
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


def test_the_declaration_contains_the_marker_or_the_image(tmp_path: Path) -> None:
    """A pin for old versions of Python differs from one without a condition."""
    requirements = 'onnxruntime==1.16.3 ; python_version < "3.8"\nonnxruntime==1.18.1\n'
    image = "mcr.microsoft.com/azureml/onnxruntime:v1.15.1"
    deployments = find(tmp_path, requirements_dot_txt=requirements, Dockerfile=f"FROM {image}\n")

    assert [it.declaration for it in deployments.runtimes] == [
        image,
        'onnxruntime==1.16.3 ; python_version < "3.8"',
        "onnxruntime==1.18.1",
    ]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_requirements_of_powershell(tmp_path: Path, encoding: str) -> None:
    """Windows PowerShell writes UTF-16 with a byte order mark, which pip reads."""
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "requirements.txt").write_bytes(f"{mark}numpy\r\nonnxruntime==1.18.1\r\n".encode(encoding))
    (runtime,) = find_deployments(tmp_path, ["requirements.txt"]).runtimes

    assert (runtime.requirement, runtime.line) == ("onnxruntime==1.18.1", 2)
