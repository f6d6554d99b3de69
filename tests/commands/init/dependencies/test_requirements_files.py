"""Requirements files include other files and are limited by constraints files."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.commands.init.deployed_runtimes import find_deployments


def find(folder: Path, files: dict[str, str]) -> list[str]:
    """Write the files and read those with a known name; return the target and its declaration for each package."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    deployments = find_deployments(folder, files)

    assert deployments.problems == ()
    return [f"{it.specifier} from {it.declaration} in {it.file}:{it.line}" for it in deployments.runtimes]


@pytest.mark.parametrize(
    "option", ["-r other.txt", "-rother.txt", "--requirement other.txt # x", "--requirement=other.txt"]
)
def test_included_files_are_read(tmp_path: Path, option: str) -> None:
    """The name of an included file does not matter; an inclusion of the including file does not end in a loop."""
    files = {"requirements.txt": f"{option}\nnumpy\n", "other.txt": "-r requirements.txt\nonnxruntime==1.18.1\n"}

    assert find(tmp_path, files) == ["==1.18.1 from onnxruntime==1.18.1 in other.txt:2"]


def test_files_that_only_development_requirements_include(tmp_path: Path) -> None:
    """They are for development; a file that other requirements also include is deployed."""
    files = {
        "requirements-dev.txt": "-r more.txt\n-r base.txt\n",
        "requirements.txt": "-r base.txt\n",
        "more.txt": "onnxruntime==1.19.2\n",
        "base.txt": "onnxruntime==1.18.1\n",
    }

    assert find(tmp_path, files) == ["==1.18.1 from onnxruntime==1.18.1 in base.txt:1"]


def test_files_that_cannot_be_followed_are_named(tmp_path: Path) -> None:
    """Files outside of the repository, URLs and missing files are not read."""
    (tmp_path / "outside.txt").write_text("onnxruntime==1.18.1\n", encoding="utf-8")
    folder = tmp_path / "a"
    folder.mkdir()
    text = "-r ../outside.txt\n-r https://example.org/r.txt\n-r missing.txt\n-c ${HOME}/limits.txt\n"
    (folder / "requirements.txt").write_text(text, encoding="utf-8")
    deployments = find_deployments(folder, ["requirements.txt"])

    assert deployments.runtimes == ()
    assert deployments.problems == (
        "requirements.txt:1: not read: `../outside.txt` is not a file in this repository",
        "requirements.txt:2: not read: `https://example.org/r.txt` is not a file in this repository",
        "requirements.txt:3: not read: `missing.txt` does not exist",
        "requirements.txt:4: not read: `${HOME}/limits.txt` is not a file in this repository",
    )
    assert [it.file for it in find_deployments(folder, ["requirements.txt"], tmp_path).runtimes] == ["../outside.txt"]


@pytest.mark.parametrize(
    ("requirement", "constraint", "expected"),
    [
        ("onnxruntime>=1.16", "onnxruntime<1.20", [">=1.16,<1.20", ">=1.16,<1.20"]),
        ("onnxruntime", "onnxruntime==1.18.1", ["==1.18.1", "==1.18.1"]),
        ("onnxruntime==1.18.1", "onnxruntime<1.20", ["==1.18.1"]),
        ("onnxruntime>=1.21", "onnxruntime<1.20", [">=1.21"]),
        ("fastembed", "onnxruntime==1.18.1", ["==1.18.1"]),
        ("onnxruntime>=1.16", "onnxruntime-gpu<1.20", [">=1.16", "<1.20"]),
    ],
)
@pytest.mark.parametrize("name", ["constraints.txt", "pins/limits.txt"])
def test_constraints_narrow_a_range(
    tmp_path: Path, requirement: str, constraint: str, expected: list[str], name: str
) -> None:
    """A constraints file installs nothing: it limits the releases that the requirements select."""
    files = {"requirements.txt": f"{requirement}\n-c {name}\n", name: f"{constraint}\n"}

    assert [line.partition(" ")[0] for line in find(tmp_path, files)] == expected


@pytest.mark.parametrize("included", [True, False])
def test_an_included_constraint_does_not_narrow_a_manifest(tmp_path: Path, included: bool) -> None:
    """`-c` limits what pip installs from the requirements file. A file that nothing includes limits the folder."""
    files = {
        "pyproject.toml": '[project]\ndependencies = ["onnxruntime>=1.16"]\n',
        "requirements.txt": f"numpy\n{'-c constraints.txt' if included else ''}\n",
        "constraints.txt": "onnxruntime<1.20\n",
    }
    narrowed = [">=1.16,<1.20", ">=1.16,<1.20"]

    assert [line.partition(" ")[0] for line in find(tmp_path, files)] == ([">=1.16"] if included else narrowed)


def test_an_included_constraint_narrows_only_requirements(tmp_path: Path) -> None:
    """The manifest and the requirements file declare the same package."""
    files = {
        "pyproject.toml": '[project]\ndependencies = ["onnxruntime>=1.16"]\n',
        "requirements.txt": "onnxruntime\n-c constraints.txt\n",
        "constraints.txt": "onnxruntime<1.20\n",
    }

    assert sorted(find(tmp_path, files)) == [
        "<1.20 from onnxruntime in requirements.txt:1",
        "<1.20 from onnxruntime<1.20 in constraints.txt:1",
        ">=1.16 from onnxruntime>=1.16 in pyproject.toml:2",
    ]
