"""Models that crash, hang, request 200 GB or contain control sequences do not affect other models."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path

import onnx.helper
import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import ENDLESS, PROJECTS, Make
from tests.e2e.test_broken_project import select_fields
from tests.harness.github.workflow_commands import commands
from tests.harness.marked_processes import MARK, marked
from tests.harness.models import RELU, parse, write
from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import PATIENCE_S, Repository

pytestmark = pytest.mark.index
HOSTILE = PROJECTS / "hostile"
FILES = {"json": "report.json", "github": "report.github", "summary": "report.md"}
LOG = ("stdout", "stderr", "report.json", "report.md")
NAME = "models/\u202exnno \x1b[31mred\x9b31m ##[error]obeyed.onnx"
SPEECH = "\n::error::obeyed\r##[error]obeyed\x1b[31mred\x1b]0;title\x07\u202e\u2066%0A::error::obeyed"
NODE = "::error::obeyed ##[error]obeyed \u202e\u2066%0A::error::obeyed"
FOLD = "g (float[N, 4] rows) => (float[N, 3] folded) <int64[2] shape = {0, 3}> { folded = Reshape(rows, shape) }"


@pytest.fixture(scope="session")
def check_outputs(command: Repository, create_once: Callable[[str, Make], Path]) -> dict[str, str]:
    """Return the outputs of one check by file name; "left" contains the processes that it left running."""

    def make(folder: Path) -> None:
        copy_tree(ROOT / HOSTILE, folder / "root" / HOSTILE)
        commit(folder / "root")
        repository = command.at(folder / "root" / HOSTILE).with_environment(**{MARK: folder})
        for name, text in check(repository, folder).items():
            (folder / name).write_bytes(text.encode())
        (folder / "left").write_text(" ".join(map(str, marked(str(folder)))))

    folder = create_once("hostile", make)
    return {name: (folder / name).read_bytes().decode() for name in (*LOG, "report.github", "left")}


def check(repository: Repository, folder: Path) -> dict[str, str]:
    """Run a failing check and return its output in every format; the files are written to `folder`."""
    files = [f"{name}={folder / file}" for name, file in FILES.items()]
    outputs = [word for output in ("text", *files) for word in ("--output", output)]
    result = repository.run("check", "--verbose", *outputs, status=1)
    written = {file: (folder / file).read_bytes().decode() for file in FILES.values()}
    return {"stdout": result.out, "stderr": result.err, **written}


def hidden(text: str) -> list[str]:
    """Return the control characters and other invisible characters of a text."""
    return [each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") and each != "\n"]


def test_each_hostile_model_has_one_finding(check_outputs: dict[str, str]) -> None:
    """A segfault, an endless loop and a 200 GB allocation are findings; nothing is undecided."""
    report = json.loads(check_outputs["report.json"])

    assert select_fields(report["findings"]) == json.loads((ROOT / HOSTILE / "expected.json").read_bytes())
    assert (report["undecided"], report["skipped"]) == ([], [])


def test_the_healthy_model_is_judged(check_outputs: dict[str, str]) -> None:
    """A healthy model in the same check runs and passes."""
    states = {cell["model"]: cell["state"] for cell in json.loads(check_outputs["report.json"])["cells"]}

    assert states.pop("models/healthy.onnx") == "pass"
    assert set(states.values()) == {"fail"}


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_no_process_outlives_the_check(check_outputs: dict[str, str]) -> None:
    """No process outlives the check after a crash, a timeout or an out-of-memory error."""

    assert check_outputs["left"] == ""


@pytest.mark.parametrize("where", LOG)
def test_output_contains_no_commands(check_outputs: dict[str, str], where: str) -> None:
    """No output line is a GitHub workflow command, and no line contains control characters."""

    assert list(commands(check_outputs[where])) == []
    assert hidden(check_outputs[where]) == []
    assert where == "stderr" or "obeyed" in check_outputs[where]


def test_annotations_are_only_those_of_onnxgate(check_outputs: dict[str, str]) -> None:
    """The GitHub output has one annotation per finding, at a file of the repository, and no other command."""
    obeyed = list(commands(check_outputs["report.github"]))
    places = [(each.name, each.properties["file"], each.properties["line"]) for each in obeyed]
    expected = json.loads((ROOT / HOSTILE / "expected.json").read_bytes())

    assert places == [("error", f"{HOSTILE}/onnxgate.lock", str(each["place"]["line"])) for each in expected]
    assert {key for each in obeyed for key in each.properties} == {"file", "line", "title"}
    assert hidden(check_outputs["report.github"]) == []


@pytest.fixture
def speaking(small: Repository) -> Repository:
    """Return a repository with two models full of control sequences: one runs, one fails at a named node."""
    folding, running = parse(FOLD), parse(RELU)
    folding.graph.node[0].name = NODE
    for model in (folding, running):
        model.graph.node[0].output[0] = model.graph.output[0].name = SPEECH
        model.producer_name = model.doc_string = SPEECH
        onnx.helper.set_model_props(model, {SPEECH: SPEECH})
    write(small.folder / NAME, folding)
    write(small.folder / "models" / "loud.onnx", running)
    return small


def test_names_in_models_have_no_effect(speaking: Repository, tmp_path: Path) -> None:
    """Names of nodes and outputs are shown in every format but have no effect in any."""
    speaking.run("lock", "--offline")
    actual = check(speaking, tmp_path)
    (finding,) = json.loads(actual["report.json"])["findings"]
    outputs = {measurement["output"] for measurement in json.loads(actual["report.json"])["measured"]}

    assert finding["node"].startswith("::error::obeyed ")
    assert outputs == {"y", SPEECH}
    assert [name for name, text in actual.items() if hidden(text)] == []
    assert [command.name for text in actual.values() for command in commands(text)] == ["error"]


@pytest.mark.parametrize(
    "arguments", [("lock",), ("lock", "--check"), ("init", "-y"), ("check", "--static"), ("check", f"no {NAME}")]
)
def test_every_command_escapes_names(speaking: Repository, arguments: tuple[str, ...]) -> None:
    """Every command that prints the name of a model or a path escapes it."""
    commit(speaking.folder)
    with speaking.start(*arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)

    assert "obeyed" in out + err
    assert list(commands(out + err)) == []
    assert hidden(out + err) == []


def test_terminal(speaking: Repository) -> None:
    """On a terminal with colors and progress, text from a model is printed only as visible characters."""
    write(speaking.folder / NAME, ENDLESS)
    speaking.run("lock", "--offline")
    speaking.write("onnxgate.toml", speaking.read("onnxgate.toml") + "[limits]\ntime-s = 1\n")
    shown = on_a_terminal(speaking, "check")

    assert "  run \\u202exnno " in shown
    assert "runtime-timed-out" in shown
    assert [part for part in ("\x1b[31mred", "\x1b]", "\x9b", "\u202e", "\x07") if part in shown] == []
    assert list(commands(shown)) == []


def on_a_terminal(repository: Repository, *arguments: str) -> str:
    """Return all output that a command sends to a terminal."""
    ours, theirs = pty.openpty()
    chunks: list[bytes] = []
    environment = {**repository.environment, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(
        [repository.program, *arguments],
        cwd=repository.folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    reader = threading.Thread(target=_read, args=(ours, chunks))
    reader.start()
    process.wait(PATIENCE_S)
    reader.join()
    os.close(ours)
    return b"".join(chunks).decode()


def _read(terminal: int, chunks: list[bytes]) -> None:
    try:
        while chunk := os.read(terminal, 4096):
            chunks.append(chunk)
    except OSError:  # on Linux, the read fails after the last writer has closed the terminal
        return
