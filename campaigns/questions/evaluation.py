"""Answer each question with onnxgate, and load its model on the releases that decide whether the answer is right."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import onnx
import onnx.external_data_helper
import onnx.numpy_helper
import onnx.parser
from packaging.specifiers import SpecifierSet

from campaigns.conformance import engine_loads, environments
from onnxgate.support.operators import list_known_releases

QUESTIONS = Path(__file__).with_name("questions.toml")
LOADS, REFUSED = "loads", "refused"
_ANSWER = re.compile(r"is supported (?:by all|since [a-z-]+ (?P<since>[0-9.]+[0-9]))|is not supported by any")
_LOAD = """
import json, sys, onnxruntime
onnxruntime.set_default_logger_severity(4)
for path in sys.argv[1:]:
    text = ""
    try:
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        text = str(error) or type(error).__name__
    print(json.dumps(text))
"""
"""Script that runs on one release and prints the error text of each model; "" if it loads."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question from a public thread, as a model, and the known releases that load this model."""

    thread: str  # URL
    asked: str  # year and month
    question: str
    engine: str = "onnxruntime"
    support: str = ""  # arguments of `onnxgate support`; "": the answer depends on more than types and versions
    answer: str = ""  # part of the first line of `onnxgate support`, if the line names no releases
    model: str  # ONNX text
    is_linked: bool = False  # the model and its data are links to other folders
    releases: tuple[str, ...] = ()  # which the thread names
    loads: str = ""  # version specifier; "": no release
    note: str = ""

    @property
    def command(self) -> str:
        """Command that answers the question."""
        return f"onnxgate support {self.support}" if self.support else "onnxgate matrix model.onnx"

    @property
    def name(self) -> str:
        """Name of the thread, such as `microsoft/onnxruntime#504`."""
        return "#".join(self.thread.removeprefix("https://github.com/").split("/issues/"))

    def loads_on(self, release: str) -> bool:
        """Return whether a release loads the model."""
        return bool(self.loads) and release in SpecifierSet(self.loads)


class Questions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All questions, with the newest releases that their answers are about."""

    newest: dict[str, str]  # by engine
    questions: tuple[Question, ...]

    def list_releases(self, engine: str) -> list[str]:
        """Return the known releases of an engine that the answers are about, in ascending order."""
        known = list_known_releases(engine)
        return [*known[: known.index(self.newest[engine]) + 1]]

    def select_decisive_releases(self, question: Question) -> list[str]:
        """Return the releases that the thread names, the oldest, the newest, and those next to each change."""
        releases = self.list_releases(question.engine)
        pairs = itertools.pairwise(releases)
        changes = {release for pair in pairs if len({*map(question.loads_on, pair)}) > 1 for release in pair}
        chosen = {releases[0], releases[-1], *changes, *question.releases}
        return [release for release in releases if release in chosen]


def load_questions() -> Questions:
    """Return all questions."""
    return msgspec.toml.decode(QUESTIONS.read_bytes(), type=Questions)


def write_model(question: Question, folder: Path) -> Path:
    """Write the model of a question to a new folder, and return its path."""
    folder.mkdir()
    path, model = folder / "model.onnx", onnx.parser.parse_model(question.model)
    if not question.is_linked:
        path.write_bytes(model.SerializeToString())
        return path
    for tensor in model.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.external_data_helper.convert_model_to_external_data(model, location="model.data", size_threshold=0)
    stored, linking = folder / "blobs", folder / "snapshot"
    stored.mkdir()
    linking.mkdir()
    onnx.save_model(model, stored / "model.onnx")
    for name in ("model.onnx", "model.data"):
        (stored / name).rename(stored / f"{name}-content")
        (linking / name).symlink_to(Path("..", "blobs", f"{name}-content"))
    return linking / "model.onnx"


def predict(engine: str, paths: Sequence[Path]) -> list[dict[str, str]]:
    """Return what `onnxgate matrix` predicts for each model, by release."""
    target = f"{engine}>={list_known_releases(engine)[0]}"
    command = [sys.executable, "-m", "onnxgate", "matrix", "--target", target, "--output", "json", *map(str, paths)]
    printed = subprocess.run(command, cwd=paths[0].parent, capture_output=True, check=False).stdout
    predicted = [model["runtimes"] for model in json.loads(printed)["models"]]
    return [{row["runtime"].split()[1]: row["predicted"] for row in rows} for rows in predicted]


def ask(question: Question) -> str:
    """Return the first line that `onnxgate support` prints for a question."""
    command = [sys.executable, "-m", "onnxgate", "support", *shlex.split(question.support)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).partition("\n")[0]


def is_answered(question: Question, line: str, releases: Iterable[str]) -> bool:
    """Return whether the first line of `onnxgate support` gives the expected answer about releases."""
    if question.answer:
        return question.answer in line
    match = _ANSWER.search(line)
    if match is None:
        return False
    if match[0] == "is not supported by any":
        return not question.loads
    since = match["since"] or list_known_releases(question.engine)[0]
    return all((release in SpecifierSet(f">={since}")) == question.loads_on(release) for release in releases)


def load_on_release(engine: str, release: str, paths: Sequence[Path]) -> list[str]:
    """Load models on a release, and return the error text of each; "" if it loads."""
    if engine != "onnxruntime":
        models = {str(path): path.read_bytes() for path in paths}
        texts = engine_loads.load_all(engine_loads.find_spec(engine, release), models)
        return [texts[str(path)] for path in paths]
    python = environments.python_of(release, environments.cache())
    command = [str(python), "-I", "-c", _LOAD, *map(str, paths)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def describe_loads(question: Question) -> str:
    """Return which releases load the model, in words."""
    match question.loads[:2]:
        case "":
            return "none"
        case "!=":
            return f"all except {question.loads[2:]}"
        case _:
            oldest, since = list_known_releases(question.engine)[0], question.loads.removeprefix(">=")
            return "all" if since == oldest else f"since {since}"


def find_differences(question: Question, outcomes: Mapping[str, str]) -> list[str]:
    """Return the releases whose outcome, `loads` or `refused`, is not the expected one."""
    return [
        release
        for release, outcome in outcomes.items()
        if outcome != (LOADS if question.loads_on(release) else REFUSED)
    ]
