"""`onnxgate init` in small repositories: targets follow from the declared runtimes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from onnxgate import __version__
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
        ("uv", {"cpu": "onnxruntime==1.20.1"}, "`onnxruntime==1.20.1` in uv.lock:11"),
        ("poetry", {"cpu": "onnxruntime==1.19.2"}, "`onnxruntime==1.19.2` in poetry.lock:10"),
        ("docker", {"cpu": "onnxruntime==1.18.1"}, "`onnxruntime-gpu==1.18.1` in Dockerfile:3"),
        ("node", {"cpu": "onnxruntime==1.20.1"}, "`onnxruntime-web==1.20.1` in package.json:4"),
        ("nothing", None, "no supported file requires ONNX Runtime, OpenVINO or tract; the config targets"),
        (
            "monorepo",
            {"api": "onnxruntime==1.18.1", "batch": "onnxruntime>=1.22,<1.25"},
            "edge/onnxgate.toml; its models are excluded here",
        ),
        ("lfs", {"cpu": "onnxruntime==1.18.1"}, "1 model (Git LFS, 1 not fetched)"),
        ("conda", {"cpu": "onnxruntime==1.19.2"}, "`onnxruntime==1.19.2` in environment.yml:7"),
        ("npm", {"web": "onnxruntime==1.20.1", "node": "onnxruntime==1.19.2"}, "`onnxruntime-node==1.19.2` in package"),
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

    assert f"  {origin}" in done.stdout
    assert targets is None or actual == targets
    assert [model.path for model in project.models()] == ["models/net.onnx"]
    assert (folder / LOCK).exists() == (name != "lfs")
    if name == "nothing":
        runtimes = load_lock(folder / LOCK).targets["cpu"].runtimes
        assert len({runtime.release.rpartition(".")[0] for runtime in runtimes}) == 4


def test_a_comment_counts_no_releases(installed: Path, tmp_path: Path) -> None:
    """A range may contain releases that are newer than the support data; only the lock counts them."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / "requirements.txt").write_text("onnxruntime>=1.20,<2\n", encoding="utf-8")
    git(folder, "add", ".")
    init(installed, folder, "--no-lock")
    text = (folder / CONFIG).read_text(encoding="utf-8")

    assert not re.search(r"\d minor releases", text)
    assert '\n# select = "bounds"  # faster: only the oldest and the newest minor release\n' in text
    assert text.count("bounds") == 1


def test_an_unpinned_runtime_is_described_once(installed: Path, tmp_path: Path) -> None:
    """Without an index, the comment does not call the releases of the support data the newest."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / "requirements.txt").write_text("onnxruntime\n", encoding="utf-8")
    git(folder, "add", ".")
    init(installed, folder, "--no-lock")
    comments = (folder / CONFIG).read_text(encoding="utf-8").partition("[targets.cpu]\n")[2].partition("runtime =")[0]

    assert comments.startswith(
        "# Declared without a version in requirements.txt:1 (`onnxruntime`).\n"
        "# The newest 4 minor releases for which onnxgate has support data; later\n# releases may exist.\n"
    )
    assert comments.count("newest") == 1


def test_a_conda_environment_that_is_not_read(installed: Path, tmp_path: Path) -> None:
    """The output does not claim that the repository has no dependency."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / "environment.yml").write_text("dependencies: [onnxruntime=1.18.1]\n", encoding="utf-8")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock")

    assert (
        "skip   environment.yml:1: not read: `dependencies: [onnxruntime=1.18.1]`\n"
        "note   no other supported file requires ONNX Runtime, OpenVINO or tract; the config targets `"
    ) in done.stdout


def test_files_that_mention_the_runtime_but_are_not_read(installed: Path, tmp_path: Path) -> None:
    """The output does not claim that nothing is deployed: it names the files and the option for the target."""
    folder = make_repository(tmp_path / "a", "nothing")
    (folder / "pixi.toml").write_text('[dependencies]\nonnxruntime = "1.18.*"\n', encoding="utf-8")
    (folder / "Cargo.toml").write_text('[dependencies]\ntract-onnx = "0.23"\n', encoding="utf-8")
    (folder / "other.toml").write_text('[a]\nonnxruntime-extensions = "1"\n', encoding="utf-8")
    (folder / ".github/workflows").mkdir(parents=True)
    (folder / ".github/workflows/t.yml").write_text("run: pip install onnxruntime==1.18.1\n", encoding="utf-8")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock")

    assert "note   no supported file requires ONNX Runtime, OpenVINO or tract; the config targets `" in done.stdout
    assert (
        "note   `.github/workflows/t.yml`, `Cargo.toml` and `pixi.toml` mention `onnxruntime` and `tract-onnx` but are "
        "not read; if the target is wrong, set `--runtime`\n"
    ) in done.stdout


def test_requirements_that_include_a_file_above_the_project(installed: Path, tmp_path: Path) -> None:
    """An included file is read wherever it is in the repository."""
    folder = make_repository(tmp_path / "a", "nothing")
    save_model(folder / "ml/net.onnx")
    (folder / "ml/requirements.txt").write_text("-r ../shared.txt\n", encoding="utf-8")
    (folder / "shared.txt").write_text("onnxruntime==1.18.1\n", encoding="utf-8")
    git(folder, "add", ".")
    done = init(installed, folder, "--no-lock", directory="ml")

    assert "found  `onnxruntime==1.18.1` in ../shared.txt:1\n" in done.stdout


def test_a_requirements_file_for_development(installed: Path, tmp_path: Path) -> None:
    """It is used only if no other file declares a runtime; the output explains both."""
    folder = make_repository(tmp_path / "a", "requirements")
    (folder / "requirements-dev.txt").write_text("onnxruntime==1.19.2\n", encoding="utf-8")
    git(folder, "add", ".")
    both = init(installed, folder, "--no-lock")
    deployed = load_config(folder / CONFIG).config.targets
    git(folder, "rm", "--quiet", "-f", "requirements.txt")
    only = init(installed, folder, "--no-lock", "--force")
    development = load_config(folder / CONFIG).config.targets

    assert "skip   requirements-dev.txt:1: `onnxruntime==1.19.2` is a development dependency\n" in both.stdout
    assert "note   This is a development dependency; the deployed release may differ.\n" in only.stdout
    assert [[it.runtime for it in targets.values()] for targets in (deployed, development)] == [
        ["onnxruntime==1.18.1"],
        ["onnxruntime==1.19.2"],
    ]


def test_models_in_a_submodule(installed: Path, tmp_path: Path) -> None:
    """Git does not list the files of a submodule. The printed setting selects them; `git add` would fail."""
    inner, folder = tmp_path / "inner", make_repository(tmp_path / "a", "requirements")
    save_model(inner / "net.onnx")
    git(inner, "init", "--quiet")
    git(inner, "add", ".")
    git(inner, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "x")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "vendor")
    save_model(folder / "new.onnx")
    done = init(installed, folder, "--no-lock")
    setting = re.search(r"`(models = .*\])` in onnxgate.toml, run `onnxgate lock`", done.stdout)

    assert "found  1 model (1 more in the git submodule `vendor`; 1 more not tracked by git)\n" in done.stdout
    assert setting is not None
    text = (folder / CONFIG).read_text(encoding="utf-8")
    (folder / CONFIG).write_text(f"{setting[1]}\n{text}", encoding="utf-8")
    assert [model.path for model in load_config(folder / CONFIG).models()] == ["models/net.onnx", "vendor/net.onnx"]
    for config in (CONFIG, "new.onnx"):
        (folder / config).unlink()
    git(folder, "rm", "--quiet", "-f", "models/net.onnx")
    alone = init(installed, folder, status=2)
    assert alone.stderr == (
        "error: all models are in the git submodule `vendor`\nhint: run `onnxgate init --directory vendor`\n"
    )


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
        "skip   requirements-x.txt: broken symbolic link",
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
    assert (
        '  - add `exclude = ["ml"]` to ../onnxgate.toml; otherwise checks with that config include these models\n'
        in done.stdout
    )
    assert (
        f"  - add this step to {WORKFLOW}, at the end of `steps:`:\n\n"
        f"      - uses: onnxgate/onnxgate@v{__version__}\n"
        "        with:\n"
        '          working-directory: "ml"\n\n'
    ) in done.stdout
    assert f"  - add these hooks to {HOOKS}, at the end of `repos:`:\n\n  - repo: https://" in done.stdout
    assert "  - install the hooks: `pre-commit install -t pre-commit -t pre-push`\n" in done.stdout


def test_printed_yaml_can_be_pasted(installed: Path, tmp_path: Path) -> None:
    """Appended to the existing files, the printed lines are a valid step and valid hooks, and no other is missing."""
    folder = make_repository(tmp_path / "a", "requirements")
    save_model(folder / "svc/small.onnx")
    git(folder, "add", ".")
    hooks = "repos:\n- repo: https://example.org\n  rev: v1\n  hooks:\n  - id: ruff\n"
    job = "jobs:\n  gate:\n    steps:\n    - uses: actions/checkout@v6\n    - run: onnxgate check --directory svc2\n"
    (folder / WORKFLOW).parent.mkdir(parents=True)
    (folder / WORKFLOW).write_text(job, encoding="utf-8")
    (folder / HOOKS).write_text(hooks, encoding="utf-8")
    done = init(installed, folder, "--no-lock", directory="svc")
    _, step, _, entry, _ = re.split(r"\n\n(?=[ -])|\n\n(?=  - )", done.stdout.partition("Next steps:\n")[2], maxsplit=4)
    (folder / WORKFLOW).write_text(f"{job}{step}\n", encoding="utf-8")
    (folder / HOOKS).write_text(f"{hooks}{entry}\n", encoding="utf-8")
    second = init(installed, folder, "--no-lock", directory="svc")

    steps = yaml.safe_load(job + step)["jobs"]["gate"]["steps"]
    assert [it.get("with") for it in steps] == [None, None, {"working-directory": "svc"}]
    repos = yaml.safe_load(f"{hooks}{entry}")["repos"]
    assert [hook["id"] for hook in repos[1]["hooks"]] == ["onnxgate", "onnxgate-lock", "onnxgate-run"]
    assert f"kept   {WORKFLOW} (contains this folder)\nkept   {HOOKS} (contains onnxgate hooks)\n" in second.stdout


def test_nested_projects_need_their_own_step(installed: Path, tmp_path: Path) -> None:
    """The workflow of the root does not check a folder with its own config."""
    folder = make_repository(tmp_path / "a", "monorepo")
    done = init(installed, folder, "--no-lock")

    assert (
        "  - also check edge in the workflow: `onnxgate init --directory edge` prints the step to add\n" in done.stdout
    )
    assert (
        f"  - add this step to {WORKFLOW}, at the end" in init(installed, folder, "--no-lock", directory="edge").stdout
    )


def test_all_models_belong_to_nested_projects(installed: Path, tmp_path: Path) -> None:
    """If all models belong to nested projects, there is nothing to set up at the root."""
    folder = make_repository(tmp_path / "a", "monorepo")
    git(folder, "rm", "--quiet", "-f", "models/net.onnx")
    done = init(installed, folder, status=2)

    assert done.stderr.startswith("error: `edge/onnxgate.toml` already covers all models\n")
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
