"""`onnxgate init` in small repositories: targets follow from the declared runtimes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.lock_file import load_lock
from tests.harness.repositories.deploying import git, make_repository, save_model

CONFIG, LOCK = "onnxgate.toml", "onnxgate.lock"
WORKFLOW, HOOKS = ".github/workflows/onnxgate.yml", ".pre-commit-config.yaml"


def init(
    command: Path, folder: Path, *arguments: str, status: int = 0, directory: str = "."
) -> subprocess.CompletedProcess[str]:
    """Run the installed command without a terminal."""
    environment = {**os.environ, "ONNXGATE_CACHE_DIR": str(folder.parent / "cache")}
    done = subprocess.run(
        [command, "init", *arguments],
        cwd=folder / directory,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.index
@pytest.mark.parametrize(
    ("name", "targets", "origin"),
    [
        ("requirements", {"cpu": "onnxruntime==1.18.1"}, "`onnxruntime==1.18.1` in requirements.txt:2"),
        ("uv", {"cpu": "onnxruntime==1.20.1"}, "`onnxruntime==1.20.1` in uv.lock:8"),
        ("poetry", {"cpu": "onnxruntime==1.19.2"}, "`onnxruntime==1.19.2` in poetry.lock:10"),
        ("docker", {"cpu": "onnxruntime==1.18.1"}, "`onnxruntime-gpu==1.18.1` in Dockerfile:3"),
        ("node", {"cpu": "onnxruntime==1.20.1"}, "`onnxruntime-web==1.20.1` in package.json:4"),
        ("nothing", None, "no ONNX Runtime dependency; the target is `onnxruntime>=1."),
        (
            "monorepo",
            {"api": "onnxruntime==1.18.1", "batch": "onnxruntime>=1.22,<1.25"},
            "edge/onnxgate.toml; its models are excluded here",
        ),
        ("lfs", {"cpu": "onnxruntime==1.18.1"}, "1 model (Git LFS, 1 not fetched)"),
    ],
)
def test_the_config_follows_the_repository(
    installed: Path, tmp_path: Path, name: str, targets: dict[str, str] | None, origin: str
) -> None:
    """Each target is a deployed release or range, and the lock pins it."""
    folder = make_repository(tmp_path / name, name)
    done = init(installed, folder)
    project = load_config(folder / CONFIG)
    actual = {target: settings.runtime for target, settings in project.config.targets.items()}

    assert f"found  {origin}" in done.stdout
    assert targets is None or actual == targets
    assert [model.path for model in project.models()] == ["models/net.onnx"]
    assert (folder / LOCK).exists() == (name != "lfs")
    if name == "nothing":
        runtimes = load_lock(folder / LOCK).targets["cpu"].runtimes
        assert len({runtime.release.rpartition(".")[0] for runtime in runtimes}) == 4


def test_no_workflow_and_no_hooks(installed: Path, tmp_path: Path) -> None:
    """Only the config is written."""
    folder = make_repository(tmp_path / "a", "requirements")
    done = init(installed, folder, "--no-lock", "--no-workflow", "--no-hooks")

    assert "wrote  onnxgate.toml\n\nNext steps:\n" in done.stdout
    assert not (folder / WORKFLOW).exists()
    assert not (folder / HOOKS).exists()


def test_a_commented_target_of_a_build_is_valid(installed: Path, tmp_path: Path) -> None:
    """The commented target for special hardware is valid once uncommented."""
    folder = make_repository(tmp_path / "a", "docker")
    init(installed, folder, "--no-lock")
    config = folder / CONFIG
    before, mark, target = config.read_text(encoding="utf-8").partition("# [targets.gpu]")
    (folder / ".venv").mkdir()
    config.write_text(before + re.sub("(?m)^# ", "", mark + target), encoding="utf-8")

    assert load_config(config).config.targets["gpu"].providers == ("CUDAExecutionProvider", "CPUExecutionProvider")


def test_a_broken_file_is_skipped(installed: Path, tmp_path: Path) -> None:
    """A broken file is reported with the reason, and all other files are read."""
    folder = make_repository(tmp_path / "a", "requirements")
    (folder / "uv.lock").write_text("[[package]\n", encoding="utf-8")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock")

    assert "skip   uv.lock: not valid TOML: line 1, column 10" in done.stdout
    assert load_config(folder / CONFIG).config.targets["cpu"].runtime == "onnxruntime==1.18.1"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no FIFOs")
def test_files_that_are_not_regular_are_skipped(installed: Path, tmp_path: Path) -> None:
    """A file of any purpose that is a folder, a dangling link or a FIFO is skipped with the reason."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / "export.py").write_text("import torch.onnx\n", encoding="utf-8")
    save_model(folder / "models/pipe.onnx")
    git(folder, "add", ".")
    for name in ("export.py", "models/pipe.onnx"):
        (folder / name).unlink()
    for name in ("export.py", "models/pipe.onnx", "requirements.txt", "pyproject.toml", HOOKS):
        os.mkfifo(folder / name)
    (folder / "requirements-dev.txt").mkdir()
    (folder / "requirements-x.txt").symlink_to("missing.txt")
    (folder / WORKFLOW).mkdir(parents=True)
    done = init(installed, folder, "--no-lock")

    assert [line for line in done.stdout.splitlines() if line.startswith("skip")] == [
        "skip   requirements-dev.txt: is a directory",
        "skip   requirements-x.txt: dangling link",
        "skip   requirements.txt: not a regular file",
        f"skip   {WORKFLOW}: is a directory",
        f"skip   {HOOKS}: not a regular file",
    ]
    assert "found  2 models (1 not readable)" in done.stdout
    assert load_config(folder / CONFIG)


def test_a_config_that_cannot_be_written(installed: Path, tmp_path: Path) -> None:
    """If the config is a folder, it is reported and nothing else is written."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / CONFIG).mkdir()
    done = init(installed, folder, "--no-lock", status=3)

    assert (
        done.stderr
        == "error: `onnxgate.toml` cannot be written: is a directory\nhint: rename or remove `onnxgate.toml`\n"
    )
    assert not (folder / HOOKS).exists()


def test_the_models_of_each_service_have_its_targets(installed: Path, tmp_path: Path) -> None:
    """In a monorepo, the models of a service are not checked on the runtimes of another one."""
    folder = make_repository(tmp_path / "a", "monorepo")
    git(folder, "rm", "--quiet", "-f", "models/net.onnx")
    for service in ("api", "batch"):
        save_model(folder / f"services/{service}/net.onnx")
    git(folder, "add", ".")
    init(installed, folder, "--no-lock")
    models = load_config(folder / CONFIG).models()

    assert [(model.path, model.settings.targets) for model in models] == [
        ("services/api/net.onnx", ("api",)),
        ("services/batch/net.onnx", ("batch",)),
    ]


def test_a_project_in_a_subfolder_of_another(installed: Path, tmp_path: Path) -> None:
    """The output names the parent config and the steps that separate both projects."""
    folder = make_repository(tmp_path / "a", "requirements")
    init(installed, folder, "--no-lock")
    save_model(folder / "ml/small.onnx")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock", directory="ml")

    assert "found  `onnxruntime==1.18.1` in ../requirements.txt:2\n" in done.stdout
    assert "found  ../onnxgate.toml, which also matches these models\n" in done.stdout
    assert '  - add `exclude = ["ml"]` to ../onnxgate.toml, or its checks include these models\n' in done.stdout
    assert f"  - add to {WORKFLOW}, below `steps:`:\n" in done.stdout
    assert 'working-directory: "ml"' in done.stdout
    assert f"  - add to {HOOKS}, below `repos:`:\n" in done.stdout


def test_all_models_belong_to_nested_projects(installed: Path, tmp_path: Path) -> None:
    """If all models belong to nested projects, there is nothing to set up at the root."""
    folder = make_repository(tmp_path / "a", "monorepo")
    git(folder, "rm", "--quiet", "-f", "models/net.onnx")
    done = init(installed, folder, status=2)

    assert done.stderr.startswith("error: all models belong to `edge/onnxgate.toml`\n")
    assert not (folder / CONFIG).exists()


def test_a_range_that_excludes_a_model_is_used_as_declared(installed: Path, tmp_path: Path) -> None:
    """A comment names the releases on which a model is predicted not to load."""
    folder = make_repository(tmp_path / "a", "nothing")
    save_model(folder / "models/new.onnx", ir=10, opset=21)
    (folder / "requirements.txt").write_text("onnxruntime>=1.17,<1.20\n", encoding="utf-8")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock")
    text = (folder / CONFIG).read_text(encoding="utf-8")

    assert 'runtime = "onnxruntime>=1.17,<1.20"\n' in text
    assert "note   Prediction: `models/new.onnx` does not load on onnxruntime 1.17.3.\n" in done.stdout
    assert "# Prediction: `models/new.onnx` does not load on onnxruntime 1.17.3.\n" in text
