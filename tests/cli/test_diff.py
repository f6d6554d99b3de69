"""`onnxgate diff`: two files, files at revisions, exit statuses and the git driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import onnx
import pytest

from onnxgate.core.report_json import build_schema
from onnxgate.model.diff.result import Difference
from tests.harness.models import RELU, make_external, parse, write
from tests.model.diff.test_model_diff import net

SIGMOID = RELU.replace("Relu", "Sigmoid")


def diff(folder: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    words = [sys.executable, "-m", "onnxgate", "diff", *map(str, arguments)]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env={**_environment(), **environment}
    )


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PYTHONPATH": root}
    author = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {**os.environ, **nobody, **author}


def git(folder: Path, *arguments: str) -> str:
    """Run git without user settings and return its output."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, env=_environment()
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a git repository with one committed model."""
    folder = tmp_path / "repository"
    write(folder / "models/net.onnx")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def test_a_revision_against_a_file(repository: Path) -> None:
    """A path after `REV:` is relative to the root of the repository; with `./`, to the working directory."""
    write(repository / "models/net.onnx", SIGMOID)
    done = diff(repository, "HEAD:models/net.onnx", "models/net.onnx")
    here = diff(repository / "models", "HEAD:./net.onnx", "net.onnx", "--quiet")

    assert (done.returncode, done.stderr) == (0, "")
    assert "  ~ `Sigmoid` `act` replaces `Relu`\n" in done.stdout
    assert here.stdout == "HEAD:./net.onnx -> net.onnx: different: nodes: 1 replaced\n"


def test_two_revisions(repository: Path) -> None:
    """Both versions are read from git; the working tree is not needed."""
    write(repository / "models/net.onnx", SIGMOID)
    git(repository, "commit", "--quiet", "-am", "second")
    (repository / "models/net.onnx").unlink()
    done = diff(repository, "HEAD^:models/net.onnx", "HEAD:models/net.onnx", "--exit-code")

    assert (done.returncode, done.stderr) == (1, "")
    assert git(repository, "status", "--short") == " D models/net.onnx\n"


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_git_lfs_and_external_data(repository: Path) -> None:
    """Git LFS content and external data are read at the given revision."""
    git(repository, "lfs", "install", "--local")
    git(repository, "lfs", "track", "*.onnx", "*.bin")
    model = net()
    (repository / "models/big.bin").write_bytes(make_external(model, "big.bin"))
    write(repository / "models/big.onnx", model)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "second")
    other = net(seed=1)
    (repository / "models/big.bin").write_bytes(make_external(other, "big.bin"))
    done = diff(repository, "HEAD:models/big.onnx", "models/big.onnx")

    assert git(repository, "show", "HEAD:models/big.bin").startswith("version https://git-lfs")
    assert "weights: 3 changed, 0 unchanged" in done.stdout
    assert "  ~ `big.bin`: `768 bytes, sha256 " in done.stdout


@pytest.mark.parametrize(("new", "status"), [(RELU, 0), (RELU.replace("[act]", "[other]"), 0), (SIGMOID, 1)])
def test_exit_code(tmp_path: Path, new: str, status: int) -> None:
    """With `--exit-code`, different models end with status 1; without it, with status 0."""
    write(tmp_path / "old.onnx")
    write(tmp_path / "new.onnx", new)

    assert diff(tmp_path, "old.onnx", "new.onnx", "--exit-code").returncode == status
    assert diff(tmp_path, "old.onnx", "new.onnx").returncode == 0


def test_missing_weights_are_undecided(tmp_path: Path) -> None:
    """Weights that are missing end with status 3 under `--exit-code`."""
    model = net()
    make_external(model, "gone.bin")
    write(tmp_path / "old.onnx", net())
    write(tmp_path / "new.onnx", model)
    done = diff(tmp_path, "old.onnx", "new.onnx", "--exit-code")

    assert done.returncode == 3
    assert "undecided: 3 weights could not be compared" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (("models/net.onnx",), "expected 2 models, got 1"),
        (("models/net.onnx", "models/gone.onnx"), "`models/gone.onnx` does not exist"),
        (("HEAD:gone.onnx", "models/net.onnx"), "`gone.onnx` does not exist at `HEAD`"),
        (("never:models/net.onnx", "models/net.onnx"), "git has no revision `never`"),
        (("page.onnx", "models/net.onnx"), "`page.onnx` cannot be read as a model: it is an HTML page"),
        (("pointer.onnx", "models/net.onnx"), "`pointer.onnx` cannot be read as a model: it is a Git LFS pointer"),
        (("cut.onnx", "models/net.onnx"), "`cut.onnx` cannot be read as a model: it is a truncated model"),
        (("models/net.onnx", "models/net.onnx", "--output", "html"), "unknown format `html`"),
        (("--textconv", "models/net.onnx", "models/net.onnx"), "`--textconv` takes one file"),
    ],
)
def test_invalid_arguments(repository: Path, arguments: tuple[str, ...], expected_message: str) -> None:
    """Invalid arguments end with status 2 and a message that names the file and the reason."""
    (repository / "page.onnx").write_text("<!doctype html><p>not found</p>", encoding="utf-8")
    (repository / "pointer.onnx").write_text(POINTER, encoding="utf-8")
    (repository / "cut.onnx").write_bytes((repository / "models/net.onnx").read_bytes()[:-5])
    done = diff(repository, *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert expected_message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("models/net.onnx",), "onnxgate diff HEAD:./models/net.onnx models/net.onnx"),
        (("new.onnx",), "onnxgate diff old.onnx new.onnx"),
        ((), "onnxgate diff old.onnx new.onnx"),
    ],
)
def test_one_model(repository: Path, arguments: tuple[str, ...], command: str) -> None:
    """The hint compares a committed model with its committed version; the command works as printed."""
    write(repository / "new.onnx")
    done = diff(repository, *arguments)

    assert done.stderr.endswith(f"hint: run `{command}`\n")
    if "HEAD" in command:
        assert diff(repository, *command.split()[2:]).returncode == 0


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"


def test_formats(tmp_path: Path) -> None:
    """Several formats can be written in one run, and the JSON matches its schema."""
    write(tmp_path / "old.onnx")
    write(tmp_path / "new.onnx", SIGMOID)
    done = diff(tmp_path, "old.onnx", "new.onnx", "--output", "json=out/diff.json", "--output", "markdown")
    written = json.loads((tmp_path / "out/diff.json").read_bytes())

    assert done.stdout.startswith("`old.onnx` → `new.onnx`: **different: nodes: 1 replaced**\n")
    jsonschema.Draft202012Validator(build_schema(Difference, "")).validate(written)
    assert msgspec.json.decode((tmp_path / "out/diff.json").read_bytes(), type=Difference).verdict == "different"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTER.encode(), f"Git LFS pointer\noid sha256:{'0' * 64}\nsize 123\n"),
        (b"<!doctype html>", "not an ONNX model: an HTML page\nsize 15\nsha256 "),
        (b"", "not an ONNX model: an empty file\nsize 0\n"),
    ],
)
def test_textconv_of_other_files_succeeds(tmp_path: Path, content: bytes, message: str) -> None:
    """`--textconv` ends with status 0 for other files, because git otherwise aborts the whole diff."""
    (tmp_path / "a.onnx").write_bytes(content)
    done = diff(tmp_path, "--textconv", "a.onnx")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(message)


def test_textconv_output_is_independent_of_locale_and_path(tmp_path: Path) -> None:
    """The text for git does not depend on the locale or the path of the file."""
    model = parse(RELU)
    model.producer_name = "某人\x1b[31m\n::error::"
    first, second = write(tmp_path / "a.onnx", model), write(tmp_path / "deep/b.onnx", model)
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "onnxgate", "diff", "--textconv", path],
            capture_output=True,
            check=True,
            env={**_environment(), "LC_ALL": locale, "PYTHONUTF8": "0"},
        ).stdout
        for path in (first, second)
        for locale in ("C", "C.UTF-8")
    }

    assert len(outputs) == 1
    assert "producer name 某人\\x1b[31m\\n::error::\n".encode() in outputs.pop()


def test_git_shows_what_changed(repository: Path) -> None:
    """`git diff`, `git show` and `git log -p` show changed operators, with and without cached descriptions."""
    (repository / ".gitattributes").write_text("*.onnx diff=onnx\n", encoding="utf-8")
    git(repository, "config", "diff.onnx.textconv", f"'{sys.executable}' -m onnxgate diff --textconv")
    write(repository / "models/net.onnx", SIGMOID)
    for kept in ("false", "true", "true"):
        git(repository, "config", "diff.onnx.cachetextconv", kept)
        shown = git(repository, "diff")

        assert "\n-  y = Relu(x)\n+  y = Sigmoid(x)\n" in shown
        assert "\n-  Relu 1\n+  Sigmoid 1\n" in shown
    git(repository, "commit", "--quiet", "-am", "second")
    (repository / "models/net.onnx").write_bytes(b"broken")
    git(repository, "commit", "--quiet", "-am", "third")

    assert "+not an ONNX model: plain text\n" in git(repository, "show")
    assert git(repository, "log", "-p").count("y = Sigmoid(x)") == 2


def test_models_are_not_modified(tmp_path: Path) -> None:
    """`diff` does not modify the models or write files next to them."""
    write(tmp_path / "old.onnx")
    write(tmp_path / "new.onnx", SIGMOID)
    diff(tmp_path, "old.onnx", "new.onnx")
    diff(tmp_path, "--textconv", "old.onnx")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.onnx", "old.onnx"]
    onnx.checker.check_model(onnx.load(tmp_path / "old.onnx"))
