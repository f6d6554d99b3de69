"""`onnxgate init` sets up a repository."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import parser

from onnxgate.commands.init import targets
from onnxgate.project.config.loader import load_config
from tests.harness.github import workflow_commands

MODEL = '<ir_version: {ir}, opset_import: ["" : {opset}]> g (float[N, 4] x) => (float[N, 4] y) {{ y = Relu(x) }}'
EXPORT = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="models/net.onnx")
options = parser.parse_args()
torch.onnx.export(model, args, options.out)
"""
CONFIG, LOCK, WORKFLOW, HOOKS = (
    "onnxgate.toml",
    "onnxgate.lock",
    ".github/workflows/onnxgate.yml",
    ".pre-commit-config.yaml",
)
VALID_CONFIG = "[targets.cpu]\nruntime = 'onnxruntime==1.18.1'\n"
LFS = "*.onnx filter=lfs diff=lfs merge=lfs -text\n"
CUSTOM = """
<ir_version: 9, opset_import: ["" : 18, "{0}" : 1]>
g (float[N] x) => (float[N] y) {{ y = {0}.Inverse(x) }}
"""
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"


def save(path: Path, ir: int = 9, opset: int = 18) -> None:
    """Save a small valid model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(parser.parse_model(MODEL.format(ir=ir, opset=opset)), path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one model, one export script and a requirements file, tracked by git."""
    folder = tmp_path / "repository"
    save(folder / "models/net.onnx")
    (folder / "export.py").write_text(EXPORT, encoding="utf-8")
    (folder / "requirements.txt").write_text("numpy\ntorch==2.13.0  # cpu\nonnxscript>=0.6\n-e .\n", encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch", "trunk")
    git(folder, "add", ".")
    return folder


def git(folder: Path, *arguments: str) -> None:
    """Run git without user settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", *arguments], cwd=folder, check=True, env=environment)


def init(
    command: Path, folder: Path, *arguments: str, lock: bool = False, cache: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the installed command without a terminal."""
    words: Sequence[str | Path] = [command, "init", *([] if lock else ["--no-lock"]), *arguments]
    environment = {**os.environ, "ONNXGATE_CACHE_DIR": str(cache or folder.parent / "cache")}
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )


def test_writes_what_a_repository_needs(installed: Path, repository: Path) -> None:
    """`init` writes a config, a workflow and hooks, and prints each file and the next steps."""
    done = init(installed, repository)
    (target,) = targets.suggest_targets((), (), None)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "found  1 model\n"
        "found  `torch.onnx.export` in export.py\n"
        f"note   no supported file requires ONNX Runtime, OpenVINO or tract; the config targets `{target.runtime}`\n"
        f"wrote  {CONFIG}\nwrote  {WORKFLOW}\nwrote  {HOOKS}\n\nNext steps:\n"
    )
    assert "  - write the lock: `onnxgate lock`\n" in done.stdout


def test_written_config_is_valid(installed: Path, repository: Path) -> None:
    """The config matches the models of the repository; no export is enabled."""
    init(installed, repository)
    project = load_config(repository / CONFIG)
    (model,) = project.models()

    assert model.path == "models/net.onnx"
    assert model.settings.command is None
    assert set(project.config.targets) == {"cpu"}


def test_custom_operators_get_their_package(installed: Path, repository: Path) -> None:
    """The package of a known domain is added to the target; other domains are left to the user."""
    for name, domain in (("known", "ai.onnx.contrib"), ("unknown", "my.domain")):
        text = CUSTOM.format(domain)
        onnx.save(parser.parse_model(text), repository / f"models/{name}.onnx")
        git(repository, "add", ".")
        init(installed, repository, "--force")
        extensions = load_config(repository / CONFIG).config.targets["cpu"].extensions
        (repository / f"models/{name}.onnx").unlink()

        assert extensions == (("onnxruntime-extensions",) if name == "known" else ())


def test_one_line_lets_check_export_again(installed: Path, repository: Path) -> None:
    """Uncommenting the `command` line enables the export stage."""
    init(installed, repository)
    config = repository / CONFIG
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    commented = [line for line in lines if line.startswith("# command = ")]
    config.write_text(
        "".join(line.removeprefix("# ") if line in commented else line for line in lines), encoding="utf-8"
    )

    (model,) = load_config(config).models()

    assert len(commented) == 1
    assert model.settings.command == ("{python}", "export.py", "--out", "{output}")


def test_one_line_enables_a_source(installed: Path, repository: Path) -> None:
    """A function that builds the module is suggested as `source`; uncommenting that line enables it."""
    script = """import torch

def build():
    return Net(), (torch.zeros(1, 4),)

if __name__ == "__main__":
    net, inputs = build()
    torch.onnx.export(net, inputs, "models/net.onnx", input_names=["x"])
"""
    (repository / "export.py").write_text(script, encoding="utf-8")
    init(installed, repository)
    config = repository / CONFIG
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("# source = ", "source = "), encoding="utf-8")
    (model,) = load_config(config).models()

    assert (
        "# The export also sets `input_names`. To keep this, make `build` return a\n"
        "# mapping with these keys in addition to `model` and `args`.\n" in text
    )
    assert model.settings.source == "export.py:build"


def test_the_toolchain_is_that_of_the_requirements_file(installed: Path, repository: Path) -> None:
    """The requirements of the toolchain are taken from the requirements file and suggested in a comment."""
    init(installed, repository)

    assert '# requires = ["torch==2.13.0", "onnxscript>=0.6"]\n' in (repository / CONFIG).read_text(encoding="utf-8")


def test_nothing_is_overwritten(installed: Path, repository: Path) -> None:
    """A second run keeps all files; `--force` overwrites config and workflow, but not the hooks."""
    before = {CONFIG: VALID_CONFIG, WORKFLOW: "steps:\n- uses: onnxgate/onnxgate@v0\n", HOOKS: "# mine\n"}
    for name, text in before.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text, encoding="utf-8")

    kept = init(installed, repository)
    mine = {name: (repository / name).read_text(encoding="utf-8") for name in (CONFIG, WORKFLOW, HOOKS)}
    forced = init(installed, repository, "--force")

    assert mine == before
    assert f"kept   {CONFIG}; use `--force` to overwrite it\n" in kept.stdout
    assert "  - add these hooks to .pre-commit-config.yaml:\n\nrepos:\n  - repo: https://" in kept.stdout
    assert "  - install the hooks: `pre-commit install -t pre-commit -t pre-push`\n" in kept.stdout
    assert f"wrote  {CONFIG}\nwrote  {WORKFLOW}\nkept   {HOOKS}\n" in forced.stdout
    assert (repository / HOOKS).read_text(encoding="utf-8") == "# mine\n"


def test_only_git_diff_in_a_project_with_a_config(installed: Path, repository: Path) -> None:
    """A kept config has targets and a lock: no other target is suggested, and no step is needed."""
    (repository / CONFIG).write_text(VALID_CONFIG, encoding="utf-8")
    (repository / LOCK).write_text("# mine\n", encoding="utf-8")
    arguments = ("--git-diff", "--no-workflow", "--no-hooks")

    first, second = init(installed, repository, *arguments), init(installed, repository, *arguments)

    assert first.stdout.startswith(
        f"found  1 model\nkept   {CONFIG}; use `--force` to overwrite it\nwrote  .gitattributes"
    )
    assert first.stdout.endswith("\nNext steps:\n  - check the models: `onnxgate check`\n  - commit the new files\n")
    assert second.stdout.endswith("\nNext steps:\n  - check the models: `onnxgate check`\n")


def test_a_kept_config_without_a_lock(installed: Path, repository: Path) -> None:
    """The lock is still missing; so is one that matches an overwritten config."""
    (repository / CONFIG).write_text(VALID_CONFIG, encoding="utf-8")
    kept = init(installed, repository)
    (repository / LOCK).write_text("# mine\n", encoding="utf-8")
    forced = init(installed, repository, "--force")

    assert "  - write the lock: `onnxgate lock`\n" in kept.stdout
    assert "  - write the lock: `onnxgate lock`\n" in forced.stdout


def test_workflow_has_minimal_permissions(installed: Path, repository: Path) -> None:
    """The workflow has minimal permissions, fetches the previous commit, keeps no token and uses LFS only if needed."""
    init(installed, repository)
    written = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))
    (job,) = written["jobs"].values()
    checkout, gate = job["steps"]

    assert (written["permissions"], job["permissions"]) == ({}, {"contents": "read"})
    assert written[True] == {"push": {"branches": ["trunk"]}, "pull_request": None}
    assert checkout["with"] == {
        "fetch-depth": "${{ github.event_name == 'pull_request' && 2 || 0 }}",
        "persist-credentials": False,
    }
    assert gate == {"uses": "onnxgate/onnxgate@v0.1.0"}


def test_git_lfs_with_pointers_that_were_not_fetched(installed: Path, repository: Path) -> None:
    """The workflow fetches the models, and the next steps contain the command that fetches them locally."""
    (repository / ".gitattributes").write_text(LFS, encoding="utf-8")
    (repository / "models/net.onnx").write_text(POINTER, encoding="utf-8")

    done = init(installed, repository)
    checkout = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))["jobs"]["gate"]["steps"][0]

    assert checkout["with"]["lfs"] is True
    assert done.stdout.startswith("found  1 model (Git LFS, 1 not fetched)\n")
    comment = (
        "# There is no prediction for `models/net.onnx`, which was a Git LFS pointer when\n# this file was written.\n"
    )
    assert comment in (repository / CONFIG).read_text(encoding="utf-8")
    assert '  - fetch the models: `git lfs pull --include "models/net.onnx"`\n' in done.stdout


def test_a_function_that_returns_only_the_module(installed: Path, repository: Path) -> None:
    """The config and the next steps explain how the function becomes a source."""
    text = EXPORT.replace("import argparse, torch", "import argparse, torch\ndef build_model():\n    return Net()")
    text = text.replace("parser =", "def main():\n  parser =").replace("parser.add", "  parser.add")
    text = text.replace("options =", "  options =").replace(
        "torch.onnx.export(model", "  torch.onnx.export(build_model()"
    )
    (repository / "export.py").write_text(text, encoding="utf-8")

    done = init(installed, repository)

    function = (
        "def build_model_with_inputs():\n"
        "    import torch\n"
        "    return build_model().eval(), (torch.zeros(1, 3, 224, 224),)  # replace with example inputs of the model\n"
    )
    setting = 'source = "export.py:build_model_with_inputs"'
    assert f"  - optional: set `{setting}` in onnxgate.toml" in done.stdout
    assert f" and add this function to export.py:\n\n{function}\n" in done.stdout
    assert (
        "# To compare the model with PyTorch, add a function that returns the result of\n"
        "# `build_model` and a tuple of example inputs, and set `source =\n"
        '# "export.py:build_model_with_inputs"` instead of `command`.\n'
    ) in (repository / CONFIG).read_text(encoding="utf-8")


@pytest.mark.parametrize("returned", ["Net()", "Net(), (torch.zeros(1, 4),)"])
def test_a_script_that_exports_on_import(installed: Path, repository: Path, returned: str) -> None:
    """A source would overwrite the committed model, so the config only explains what to change first."""
    text = f"import torch\ndef build():\n    return {returned}\ndef main():\n    model, x = build()\n"
    text = text if "," in returned else text.replace("model, x", "model")
    text += "    torch.onnx.export(model, x, 'models/net.onnx')\nmain()\n"
    (repository / "export.py").write_text(text, encoding="utf-8")

    done = init(installed, repository)
    config = (repository / CONFIG).read_text(encoding="utf-8")

    assert "source = " not in config + done.stdout
    step = 'to compare the model with PyTorch, first move the export in export.py below `if __name__ == "__main__":`'
    assert f"optional: {step}\n" in re.sub("\n    ", " ", done.stdout)
    assert f"# T{step[1:]}." in config.replace("\n# ", " ").replace(" To compare", "# To compare")


def test_two_scripts_without_a_known_model(installed: Path, repository: Path) -> None:
    """All scripts are in the config, and its comments name the lines that enable an export.

    Two scripts that write the same model share an entry, because a second entry of a model is an error.
    """
    for name, written in (("first", "path"), ("second", "path"), ("third", "'models/net.onnx'")):
        text = f"import torch\ntorch.onnx.export(m, a, {written})\n"
        (repository / f"{name}.py").write_text(text, encoding="utf-8")
    git(repository, "add", ".")

    init(installed, repository)
    text = (repository / CONFIG).read_text(encoding="utf-8")

    assert "# first.py:2 calls `torch.onnx.export`.\n" in text
    assert "# second.py:2 calls `torch.onnx.export`.\n" in text
    assert "# third.py:2 calls `torch.onnx.export`.\n" in text
    assert [entry.path for entry in load_config(repository / CONFIG).config.model] == ["models/net.onnx"]
    assert "# Uncomment the `command` line and `[toolchain]` above to enable this.\n" in text


def test_packages_of_the_workflow(installed: Path, repository: Path) -> None:
    """The comment in the workflow installs a requirements file only if it contains torch."""
    init(installed, repository)
    with_file = (repository / WORKFLOW).read_text(encoding="utf-8")
    (repository / "requirements.txt").write_text("numpy\n", encoding="utf-8")
    init(installed, repository, "--force")
    without_file = (repository / WORKFLOW).read_text(encoding="utf-8")

    assert "# - run: pip install -r requirements.txt\n" in with_file
    assert "# - run: pip install torch onnxscript\n" in without_file


def test_an_invalid_config_is_reported_first(installed: Path, repository: Path) -> None:
    """The config is not called kept, and nothing is written."""
    (repository / CONFIG).write_text("# mine\n", encoding="utf-8")

    refused = init(installed, repository)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: `onnxgate.toml` has 1 problem\n")
    assert not (repository / WORKFLOW).exists()


def test_a_deployed_release_that_the_config_does_not_cover(installed: Path, repository: Path) -> None:
    """A second run compares the declared runtime with the targets of the existing config."""
    (repository / CONFIG).write_text(VALID_CONFIG, encoding="utf-8")
    (repository / "requirements.txt").write_text("onnxruntime==1.20.1\n", encoding="utf-8")

    done = init(installed, repository)

    note = "`onnxruntime==1.20.1` in requirements.txt:1 selects releases that no target in the config covers"
    assert f"note   {note}\n" in done.stdout


def test_a_project_below_gits_root(installed: Path, repository: Path) -> None:
    """The workflow and the hooks are at the root of the repository and name the folder of the project."""
    (repository / "ml").mkdir()
    git(repository, "mv", "models", "export.py", "ml/")

    init(installed, repository, "--directory", "ml")
    steps = yaml.safe_load((repository / WORKFLOW).read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    hooks = yaml.safe_load((repository / HOOKS).read_text(encoding="utf-8"))["repos"][0]["hooks"]

    assert steps[1]["with"] == {"working-directory": "ml"}
    assert [hook["args"] for hook in hooks] == [["--config", "ml/onnxgate.toml"]] * 3
    assert [model.path for model in load_config(repository / "ml" / CONFIG).models()] == ["models/net.onnx"]


def test_the_hooks_are_those_that_we_offer(installed: Path, repository: Path) -> None:
    """The hooks in the config are the ones that `.pre-commit-hooks.yaml` defines."""
    init(installed, repository)
    root = Path(__file__).parents[2]
    offered = {hook["id"] for hook in yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    (entry,) = yaml.safe_load((repository / HOOKS).read_text(encoding="utf-8"))["repos"]

    assert {hook["id"] for hook in entry["hooks"]} == offered


@pytest.mark.parametrize("folder", ["services/a", "it's c++ (1.0)"])
def test_hooks_receive_only_files_of_the_project(installed: Path, repository: Path, folder: str) -> None:
    """`files` replaces the pattern of the hook, so it repeats the suffixes. The other hooks receive no files."""
    (repository / folder).mkdir(parents=True)
    git(repository, "mv", "models", "export.py", f"{folder}/")
    root = Path(__file__).parents[2]
    (offered, *_) = yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

    init(installed, repository, "--directory", folder)
    (entry,) = yaml.safe_load((repository / HOOKS).read_text(encoding="utf-8"))["repos"]
    hook, *others = entry["hooks"]

    assert hook["files"] == f"^{re.escape(folder)}/.*{offered['files']}"
    assert re.search(hook["files"], f"{folder}/models/net.onnx")
    assert not re.search(hook["files"], f"x/{folder}/models/net.onnx")
    assert not re.search(hook["files"], f"{folder}/README.md")
    assert not any("files" in hook for hook in others)


@pytest.mark.parametrize(
    ("depth", "is_named"), [("", True), ("1", True), ("2", False), ("0", False), ("${{ x && 2 || 0 }}", False)]
)
def test_an_existing_workflow_needs_the_base(installed: Path, repository: Path, depth: str, is_named: bool) -> None:
    """The step compares models with the base, which `actions/checkout` does not fetch by default."""
    (repository / WORKFLOW).parent.mkdir(parents=True)
    fetched = f"        with:\n          fetch-depth: {depth}\n" if depth else ""
    text = f"jobs:\n  a:\n    steps:\n      - uses: actions/checkout@v6\n{fetched}"
    (repository / WORKFLOW).write_text(text, encoding="utf-8")

    done = init(installed, repository)

    assert f"add this step to {WORKFLOW}" in done.stdout
    assert ("set `fetch-depth: 2` for `actions/checkout`" in done.stdout) == is_named


def test_a_constraint_is_found_once(installed: Path, repository: Path) -> None:
    """A constraint may narrow several ranges; it is still one declaration."""
    (repository / "constraints.txt").write_text("onnxruntime<1.19\n", encoding="utf-8")
    (repository / "base.txt").write_text("onnxruntime>=1.17\n", encoding="utf-8")
    (repository / "requirements.txt").write_text("onnxruntime>=1.16\n-r base.txt\n-c constraints.txt\n", "utf-8")
    git(repository, "add", ".")

    done = init(installed, repository)

    assert done.stdout.count("in constraints.txt:1\n") == 1


def test_runtime_option_sets_the_target(installed: Path, repository: Path) -> None:
    """`--runtime` is the requirement of the target; an invalid one is an error before anything is written."""
    refused = init(installed, repository, "--runtime", "onnxruntime>>1")
    nothing = not (repository / CONFIG).exists()
    init(installed, repository, "--runtime", "onnxruntime >=1.18, <1.20")

    assert (refused.returncode, nothing) == (2, True)
    assert "error: `onnxruntime>>1` is not a valid requirement" in refused.stderr
    assert load_config(repository / CONFIG).config.targets["cpu"].runtime == "onnxruntime >=1.18, <1.20"


def test_runtime_option_of_another_engine(installed: Path, repository: Path) -> None:
    """The target is named like the engine, and its releases are predicted."""
    init(installed, repository, "--runtime", "openvino==2025.3.0")

    assert load_config(repository / CONFIG).config.targets["openvino"].runtime == "openvino==2025.3.0"
    assert "There is no prediction" not in (repository / CONFIG).read_text(encoding="utf-8")


def test_models_that_git_does_not_track(installed: Path, repository: Path) -> None:
    """The error names the command that adds the model."""
    git(repository, "rm", "--quiet", "--cached", "models/net.onnx")

    refused = init(installed, repository)

    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "error: git does not track any `.onnx` file in this folder\nhint: run `git add models/net.onnx`"
    )


def test_without_git(installed: Path, tmp_path: Path) -> None:
    """Without git, only the config is written, and the output gives the reason."""
    save(tmp_path / "a" / "net.onnx")

    done = init(installed, tmp_path / "a")

    head, steps = done.stdout.split("\nNext steps:\n")
    assert "skip   workflow and hooks: this folder is not in a git repository\n" in head
    assert steps == "  - write the lock: `onnxgate lock`\n  - check the models: `onnxgate check`\n"
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["net.onnx", CONFIG]


def test_offline_everything_else_is_done(installed: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline with an empty cache, the lock is not written and becomes a next step; all other files are written."""
    monkeypatch.setenv("UV_CACHE_DIR", str(repository.parent / "uv"))

    done = init(installed, repository, "--offline", lock=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert (repository / CONFIG).exists()
    assert not (repository / LOCK).exists()
    assert "  - write the lock: `onnxgate lock` (the first attempt failed: " in done.stdout


@pytest.mark.index
def test_joins_with_a_lock(installed: Path, repository: Path) -> None:
    """The lock matches the config, according to `lock --check`."""
    done = init(installed, repository, "--runtime", "onnxruntime==1.23.2", lock=True)
    checked = subprocess.run(
        [installed, "lock", "--check"], cwd=repository, capture_output=True, text=True, check=False
    )

    assert "write the lock" not in done.stdout
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    "attack", ["::error::x", "##[error]x", "a\nb = 1 #", '"]\nmodels = []\n#', "\x1b[31m", "\u202e"]
)
def test_hostile_names(installed: Path, repository: Path, attack: str) -> None:
    """A hostile name is escaped in the output and unchanged in the config."""
    name = f"models/{attack}.onnx"
    save(repository / name)
    (repository / "export.py").write_text(EXPORT.replace("models/net.onnx", "x"), encoding="utf-8")
    (repository / f"{attack}.py").write_text(f"import torch\ntorch.onnx.export(m, a, {name!r})\n", encoding="utf-8")
    git(repository, "add", ".")

    done = init(installed, repository)
    (entry,) = load_config(repository / CONFIG).config.model

    assert list(workflow_commands.commands(done.stdout)) == []
    assert (done.stdout + (repository / CONFIG).read_text(encoding="utf-8")).replace("\n", "").isprintable()
    assert entry.path == name
