"""The command in each hint resolves its error: the tests take it from the output and run it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxgate.project.config.loader import load_config
from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.user_repository import CommandResult, Repository

USAGE_ERROR = 2
NO_GLOB = 'models = ["models/*.onnx"]\n'


def hinted_commands(result: CommandResult) -> list[str]:
    """Return the commands that the hint quotes."""
    (hint,) = [line for line in result.err.splitlines() if line.startswith("hint: ")]
    return [quoted for quoted in re.findall(r"`([^`]+)`", hint) if quoted.split()[0] in ("onnxgate", "git")]


def in_named_folder(repository: Repository, output: str) -> Repository:
    """Return the repository in the folder that the output names for its commands, by default the same."""
    folders = set(re.findall(r"in the folder `([^`]+)`", output))
    assert len(folders) < 2
    return repository.at(repository.folder / folders.pop()) if folders else repository


def follow(repository: Repository, command: str) -> None:
    """Run a command of a hint, which must succeed."""
    program, *arguments = shlex.split(command)
    if program == "onnxgate":
        repository.run(*arguments)
    else:
        subprocess.run([program, *arguments], cwd=repository.folder, check=True, capture_output=True)


def fails(repository: Repository, *arguments: str) -> CommandResult:
    """Run a command that must end with a usage error."""
    return repository.run(*arguments, status=USAGE_ERROR)


def run_any(repository: Repository, *arguments: str) -> int:
    """Run a command and return its exit status."""
    with repository.start(*arguments) as process:
        process.communicate()
    return process.returncode


@pytest.mark.parametrize("content", ["garbage [", "", "version = 1\n[models.x]\n", "\xff"])
def test_a_damaged_lock_is_restored(small: Repository, content: str) -> None:
    """The first command of the hint restores the committed lock."""
    lock = small.folder / "onnxgate.lock"
    commit(small.folder)
    lock.write_bytes(content.encode("latin-1"))
    restore, create = hinted_commands(fails(small, "check", "--static"))
    assert hinted_commands(fails(small, "lock")) == [restore, create]
    follow(small, restore)

    assert create == "onnxgate lock"
    assert small.run("check", "--static").status == 0


@pytest.mark.index
def test_a_damaged_lock_is_deleted(small: Repository) -> None:
    """Deleting the lock and running `onnxgate lock` creates a new one. Nothing is committed that could be restored."""
    lock = small.folder / "onnxgate.lock"
    git(small.folder, "update-ref", "-d", "HEAD")
    lock.write_text("garbage [", encoding="utf-8")
    error = fails(small, "check", "--static")
    assert error.err.endswith("\nhint: delete it and run `onnxgate lock`\n")
    lock.unlink()
    (missing,) = hinted_commands(fails(small, "check", "--static"))
    follow(small, missing)

    assert small.run("check", "--static").status == 0


@pytest.mark.parametrize("content", ["garbage [", "\xff"])
def test_a_damaged_lock_that_is_committed(small: Repository, content: str) -> None:
    """Restoring a committed lock that is damaged as well would not help."""
    (small.folder / "onnxgate.lock").write_bytes(content.encode("latin-1"))
    commit(small.folder)
    errors = [fails(small, *arguments).err for arguments in (("check", "--static"), ("lock", "--check"))]

    assert all(error.endswith("\nhint: delete it and run `onnxgate lock`\n") for error in errors)


def test_a_conflict_in_the_lock(small: Repository) -> None:
    """The hint takes the lock of one branch and then updates it for the models of both."""
    commit(small.folder)
    git(small.folder, "checkout", "--quiet", "-b", "other")
    write(small.folder / "models" / "new-b.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Abs (x) }")
    small.run("lock", "--offline")
    commit(small.folder)
    git(small.folder, "checkout", "--quiet", "main")
    write(small.folder / "models" / "new-a.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Neg (x) }")
    small.run("lock", "--offline")
    commit(small.folder)
    merge = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "merge", "--quiet", "other"]
    merged = subprocess.run(merge, cwd=small.folder, capture_output=True, check=False)
    assert merged.returncode == 1
    take, update = hinted_commands(fails(small, "check", "--static"))
    follow(small, take)
    follow(small, update)

    assert small.run("check", "--static").status == 0


def selected_models(repository: Repository, *paths: str) -> set[str]:
    """Return the models of the project, or those that the paths select."""
    project = load_config(repository.folder / "onnxgate.toml")
    return {model.path for model in project.models(paths, base=repository.folder)}


@pytest.mark.parametrize("path", ["models/a new one.onnx", "fresh"])
@pytest.mark.parametrize("is_ignored", [False, True])
def test_an_untracked_model(small: Repository, path: str, is_ignored: bool) -> None:
    """The `git add` command adds the model, or those of the folder; the others are still checked."""
    small.edit("onnxgate.toml", NO_GLOB, "")
    small.write(".gitignore", "fresh/\nmodels/a*\n" if is_ignored else "")
    commit(small.folder)
    new = {"models/a new one.onnx"} if path.endswith(".onnx") else {"fresh/a.onnx", "fresh/deep/b.onnx"}
    for name in new:
        write(small.folder / name)
    error = fails(small, "check", "--static", path)
    assert f"is {'ignored' if is_ignored else 'not tracked'} by git" in error.err
    (add,) = hinted_commands(error)
    follow(small, add)

    assert selected_models(small, path) == new
    assert selected_models(small) == {"models/small.onnx", *new}


@pytest.mark.parametrize("path", ["vendor/net.onnx", "vendor"])
def test_a_model_in_a_submodule(small: Repository, tmp_path: Path, path: str) -> None:
    """`git add` cannot add a file of a submodule, so the hint is a config line that also keeps all other models."""
    add_submodule(small, tmp_path)
    small.edit("onnxgate.toml", NO_GLOB, "")
    for name in ("root.onnx", ".hidden/a.onnx", "models/.deep/b/c.onnx"):
        write(small.folder / name)
    commit(small.folder)
    before = selected_models(small)
    error = fails(small, "check", "--static", path)
    setting = re.search(r"`(models = .*\])`", error.err)

    assert "`vendor/net.onnx` is in the git submodule `vendor`" in error.err
    assert "git add" not in error.err
    assert setting is not None
    small.write("onnxgate.toml", f"{setting[1]}\n{small.read('onnxgate.toml')}")
    assert selected_models(small, path) == {"vendor/net.onnx"}
    assert selected_models(small) == {*before, "vendor/net.onnx"}
    assert len(before) == 4


def test_a_named_model_in_a_submodule(small: Repository, tmp_path: Path) -> None:
    """An entry for a model of a submodule gets the same config line, and no `git add`."""
    add_submodule(small, tmp_path)
    small.edit("onnxgate.toml", NO_GLOB, "")
    commit(small.folder)
    text = small.read("onnxgate.toml")
    small.write("onnxgate.toml", text + '[[model]]\npath = "vendor/net.onnx"\n')
    error = fails(small, "check", "--static")
    setting = re.search(r"`(models = .*\])`", error.err)

    assert "`onnxgate.toml` refers to models that are not in the project" in error.err
    assert "`vendor/net.onnx` is in the git submodule `vendor`" in error.err
    assert "git add" not in error.err
    assert setting is not None
    small.write("onnxgate.toml", f"{setting[1]}\n{small.read('onnxgate.toml')}")
    assert selected_models(small) == {"models/small.onnx", "vendor/net.onnx"}


def add_submodule(repository: Repository, tmp_path: Path) -> None:
    """Add a submodule `vendor` with one model."""
    write(tmp_path / "vendor" / "net.onnx")
    commit(tmp_path / "vendor")
    allow = ("-c", "protocol.file.allow=always")
    git(repository.folder, *allow, "submodule", "--quiet", "add", str(tmp_path / "vendor"), "vendor")


def test_no_config(small: Repository, cold: dict[str, str | Path | None]) -> None:
    """The hint names `onnxgate init`, which writes a config."""
    for name in ("onnxgate.toml", "onnxgate.lock"):
        (small.folder / name).unlink()
    commit(small.folder)
    repository = small.with_environment(**cold)
    error = fails(repository, "lock")
    (init,) = hinted_commands(error)
    follow(repository, init)

    assert "onnxgate.toml" in error.err
    assert (small.folder / "onnxgate.toml").is_file()


@pytest.mark.index
@pytest.mark.parametrize("arguments", [("lock", "models/small.onnx"), ("lock", "--upgrade", "--preview")])
def test_a_lock_that_does_not_exist_yet(small: Repository, arguments: tuple[str, ...]) -> None:
    """Commands that require a lock name the command that creates it, and work afterwards."""
    (small.folder / "onnxgate.lock").unlink()
    (create,) = hinted_commands(fails(small, *arguments))
    follow(small, create)

    assert small.run(*arguments).status == 0


def test_a_stale_export(small: Repository) -> None:
    """After both commands in the fix, the finding no longer exists."""
    write(small.folder / "fresh.onnx", "g (float[N, 4] x) => (float[N, 4] y) { y = Abs (x) }")
    (small.folder / "fresh.onnx").rename(small.folder / "fresh.bin")
    (small.folder / "copy_it.py").write_text("import shutil, sys\nshutil.copy('fresh.bin', sys.argv[1])\n")
    command = "command = ['{python}', 'copy_it.py', '{output}']\n"
    toolchain = f"[toolchain]\npython = '{Path(sys.executable).as_posix()}'\n"
    small.edit("onnxgate.toml", 'path = "models/**"\n', f'path = "models/**"\n{command}')
    small.write("onnxgate.toml", f"{small.read('onnxgate.toml')}\n{toolchain}")
    small.run("lock", "--offline")
    stale = small.report("--stage", "export", status=1)
    (fix,) = {finding["fix"] for finding in stale["findings"] if finding["rule"] == "export-stale"}
    commands = [quoted for quoted in re.findall(r"`([^`]+)`", fix) if quoted.startswith("onnxgate ")]
    for quoted in commands:
        follow(small, quoted)

    assert len(commands) == 2
    assert small.report("--stage", "export")["findings"] == []


Misspell = Callable[[Repository], tuple[str, ...]]


def in_config(old: str, new: str) -> Misspell:
    """Return a function that makes a mistake in the config."""

    def make(repository: Repository) -> tuple[str, ...]:
        repository.edit("onnxgate.toml", old, new)
        return ("check", "--static")

    return make


def on_command_line(*arguments: str) -> Misspell:
    """Return a function that makes a mistake on the command line."""
    return lambda _: arguments


@pytest.mark.parametrize(
    ("misspell", "problem", "right"),
    [
        (in_config("sizes", "sises"), "sises", "sizes"),
        (in_config("[targets.server]", "[target.server]"), "target", "targets"),
        (in_config("onnxruntime>=", "onnxrutime>="), "onnxrutime", "onnxruntime"),
        (in_config("runtime =", 'select = "minor"\nruntime ='), "minor", "minors"),
        (in_config("sizes", 'targets = ["sever"]\nsizes'), "sever", "server"),
        (in_config("[targets", "[rules]\nopset-to-new = 'off'\n\n[targets"), "opset-to-new", "opset-too-new"),
        (in_config("models/**", "model/**"), "model/**", "models/**"),
        (on_command_line("explain", "opset-to-new"), "opset-to-new", "opset-too-new"),
        (on_command_line("check", "--stage", "runtim"), "runtim", "runtime"),
        (on_command_line("lok", "--check"), "lok", "lock"),
        (on_command_line("check", "--statik"), "--statik", "--static"),
    ],
)
def test_a_misspelled_name(small: Repository, misspell: Misspell, problem: str, right: str) -> None:
    """The suggestion is the intended name, with which the command is accepted."""
    arguments = misspell(small)
    error = fails(small, *arguments).err
    suggested = re.search(r"[Dd]id you mean (?:one of: )?(.*)", error)

    assert suggested is not None, error
    assert right in re.findall(r"[`']([^`']+)[`']", suggested[1])
    config = small.folder / "onnxgate.toml"
    config.write_text(re.sub(rf"(?<![\w/]){re.escape(problem)}(?![\w/])", right, config.read_text(encoding="utf-8")))
    corrected = tuple(right if word == problem else word for word in arguments)
    assert run_any(small, *corrected) != USAGE_ERROR


def test_a_misspelled_callable(small: Repository) -> None:
    """The suggestion is a function of the file."""
    small.write("build.py", "def build_model():\n    return 1\n")
    toolchain = f"[toolchain]\npython = '{Path(sys.executable).as_posix()}'\n"
    small.edit("onnxgate.toml", 'path = "models/**"\n', 'path = "models/**"\nsource = "build.py:build_modle"\n')
    small.write("onnxgate.toml", f"{small.read('onnxgate.toml')}\n{toolchain}")
    wrong = small.run("export", status=1).out
    suggested = re.search(r'set `source = "build.py:(\w+)"`', wrong)
    assert suggested is not None, wrong
    small.edit("onnxgate.toml", "build_modle", suggested[1])

    assert "has no callable" not in small.run("export", status=1).out


def test_a_model_that_is_outside_of_the_project(small: Repository, tmp_path: Path) -> None:
    """The hint points to the other project, in which the same command works. The repository is not a project."""
    other = tmp_path / "other"
    shutil.copytree(small.folder, other)
    (other / "onnxgate.toml").rename(other / "moved.toml")
    error = fails(small, "check", "--static", str(other / "models" / "small.onnx"))
    (other / "moved.toml").rename(other / "onnxgate.toml")

    assert "run onnxgate in the project that contains the model" in error.err
    assert small.at(other).run("check", "--static", "models/small.onnx").status == 0


@pytest.fixture(params=["path from above", "directory", "below", "outside"])
def nested(small: Repository, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Repository, tuple[str, ...]]:
    """Return a project that is not in the root of its repository, and PATHS and options that select it from elsewhere.

    The command runs in the folder of the returned repository.
    """
    folder = tmp_path / "outer" / "a project"
    shutil.copytree(small.folder, folder, ignore=shutil.ignore_patterns(".git"))
    (tmp_path / "elsewhere").mkdir()
    commit(tmp_path / "outer")
    return {
        "path from above": (small.at(tmp_path / "outer"), ("a project/models/small.onnx",)),
        "directory": (small.at(tmp_path / "outer"), ("--directory", "a project")),
        "below": (small.at(folder / "models"), ()),
        "outside": (small.at(tmp_path / "elsewhere"), ("--directory", str(folder))),
    }[request.param]


def test_a_damaged_lock_of_a_nested_project(nested: tuple[Repository, tuple[str, ...]], tmp_path: Path) -> None:
    """Both commands of the hint work in the folder that it names, wherever the working directory is."""
    repository, arguments = nested
    lock = tmp_path / "outer" / "a project" / "onnxgate.lock"
    lock.write_text("garbage [", encoding="utf-8")
    error = fails(repository, "check", "--static", *arguments)
    restore, create = hinted_commands(error)
    named = in_named_folder(repository, error.err)
    follow(named, restore)
    assert repository.run("check", "--static", *arguments).status == 0
    follow(named, f"{create} --offline")

    assert repository.run("check", "--static", *arguments).status == 0


def test_a_fix_of_a_nested_project(nested: tuple[Repository, tuple[str, ...]], tmp_path: Path) -> None:
    """The command in the fix of a finding works in the named folder; the JSON report is independent of it."""
    repository, arguments = nested
    model = tmp_path / "outer" / "a project" / "models" / "small.onnx"
    write(model, "g (float[N, 4] x) => (float[N, 4] y) { y = Abs (x) }")
    shown = repository.run("check", "--static", *arguments, status=1).out
    (command,) = re.findall(r"fix: (?:in the folder `[^`]+`, )?run `(onnxgate lock [^`]+)`", shown)
    (finding,) = repository.report("--static", *arguments, status=1)["findings"]
    assert finding["fix"] == "run `onnxgate lock models/small.onnx` and commit the lock, or restore the model"
    follow(in_named_folder(repository, shown), command)

    assert repository.run("check", "--static", *arguments).status == 0


def test_an_untracked_model_of_a_nested_project(nested: tuple[Repository, tuple[str, ...]], tmp_path: Path) -> None:
    """The `git add` command works in the named folder."""
    repository, arguments = nested
    folder = tmp_path / "outer" / "a project"
    config = (folder / "onnxgate.toml").read_text(encoding="utf-8")
    (folder / "onnxgate.toml").write_text(config.replace(NO_GLOB, ""), encoding="utf-8")
    write(folder / "models" / "new.onnx")
    options = tuple(it for it in arguments if not it.endswith(".onnx"))
    path = str(folder / "models" / "new.onnx")
    error = fails(repository, "check", "--static", *options, path)
    (add,) = hinted_commands(error)
    follow(in_named_folder(repository, error.err), add)

    assert run_any(repository, "check", "--static", *options, path) != USAGE_ERROR


@pytest.mark.parametrize("arguments", [("check", "--static"), ("lock", "--check"), ("plan", "--shards", "1"), ("fix",)])
def test_commands_above_a_project(small: Repository, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """All commands find the project from PATHS; without PATHS, the hint names the option that selects it."""
    shutil.copytree(small.folder, tmp_path / "outer" / "a project")
    above = small.at(tmp_path / "outer")
    error = fails(above, *arguments)
    (option,) = re.findall(r"^hint: .*add `([^`]+)`$", error.err, re.MULTILINE)
    result = above.run(*arguments, "a project/models/small.onnx")

    assert option == "--directory 'a project'"
    assert result.err == "note: using `a project/onnxgate.toml`, the config nearest to the models\n"
    assert above.run(*arguments, *shlex.split(option)).err == ""


def test_an_excluded_model(small: Repository) -> None:
    """Hooks pass excluded models, so the check passes; the output names the reason why the model is not checked."""
    small.write("onnxgate.toml", f'exclude = ["bad.onnx"]\n{small.read("onnxgate.toml")}')
    small.run("lock", "--offline")
    small.write("bad.onnx", "")
    reason = "`bad.onnx` is excluded by `exclude` in `onnxgate.toml`"

    assert reason in small.run("check", "--static", "bad.onnx").out
    assert reason in small.report("--static", "bad.onnx", "models/small.onnx")["remarks"]
    assert small.run("lock", "--check", "bad.onnx").err == f"note: {reason}\n"


def test_a_missing_lock_of_a_nested_project(small: Repository, tmp_path: Path) -> None:
    """The hint names the folder of the project, which is below the working directory."""
    nested = tmp_path / "outer" / "nested"
    shutil.copytree(small.folder, nested)
    (nested / "onnxgate.lock").unlink()
    error = small.at(tmp_path / "outer").run("check", "nested/models/small.onnx", status=USAGE_ERROR)

    assert error.err.endswith("hint: in the folder `nested`, run `onnxgate lock`\n")


@pytest.mark.parametrize(
    ("arguments", "config", "with_config"),
    [
        (("../models/a.onnx",), "onnxgate.toml", ""),
        (("--directory", "..", "models/a.onnx"), "onnxgate.toml", ""),
        (("--config", "../alt.toml", "../models/a.onnx"), "alt.toml", " with `--config alt.toml`"),
    ],
)
def test_a_fix_without_a_lock(files: Repository, arguments: tuple[str, ...], config: str, with_config: str) -> None:
    """The paths of the recommended repair are relative to the named folder, not to the working directory."""
    write(files.folder / "models" / "a.onnx")
    files.write(config, 'models = ["models/*.onnx"]\n[targets.server]\nruntime = "onnxruntime>=1.18"\n')
    (files.folder / "sub").mkdir()
    below = files.at(files.folder / "sub")
    error = fails(below, "fix", *arguments)
    create, repair = hinted_commands(error)
    follow(in_named_folder(below, error.err), repair)

    assert create == "onnxgate lock"
    assert repair == "onnxgate fix --target 'onnxruntime>=1.18' models/a.onnx"
    assert f"hint: in the folder `..`{with_config}, run `" in error.err


@pytest.mark.parametrize("subcommand", ["check", "matrix"])
def test_a_fix_without_a_config(files: Repository, subcommand: str) -> None:
    """Without a config, fixes are for the folder of `--directory`."""
    write(files.folder / "a folder" / "new.onnx", parse(head='<ir_version: 13, opset_import: ["" : 17]>\n'))
    arguments = ("--directory", "a folder", "--target", "onnxruntime==1.18.1", "new.onnx")
    shown = files.run(subcommand, *arguments, status=1).out
    (repair,) = re.findall(r"fix: (?:in the folder `[^`]+`, )?run `(onnxgate fix [^`]+)`", shown)
    follow(in_named_folder(files, shown), repair)

    assert files.run(subcommand, *arguments).status == 0


def test_an_init_of_another_folder(files: Repository) -> None:
    """The hint of an option that requires a config names the folder in which it is missing."""
    write(files.folder / "sub" / "a.onnx")
    error = fails(files, "check", "--directory", "sub", "--shard", "1/2", "a.onnx")

    assert error.err.endswith("hint: in the folder `sub`, run `onnxgate init` to create a config\n")


@pytest.mark.parametrize("path", ["..", "../model.onnx", "../below/../model.onnx"])
def test_a_pointer_outside_of_the_working_directory(files: Repository, path: str) -> None:
    """The path in the hint is relative to git's root, as git-lfs requires."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    files.write("model.onnx", pointer)
    (files.folder / "below").mkdir()
    git(files.folder, "init", "-q")
    result = files.at(files.folder / "below").run("check", path, status=3)

    assert 'git lfs pull --include "model.onnx"' in result.out


@pytest.mark.parametrize("path", ["../x", "../x/model.onnx"])
def test_a_pointer_in_a_neighboring_folder(files: Repository, path: str) -> None:
    """The path in the hint contains the folder of the model."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 9\n"
    for name in ("x/model.onnx", "below/empty"):
        (files.folder / name).parent.mkdir()
        files.write(name, pointer)
    git(files.folder, "init", "-q")
    result = files.at(files.folder / "below").run("check", path, status=3)

    assert 'git lfs pull --include "x/model.onnx"' in result.out
