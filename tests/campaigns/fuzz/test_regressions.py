"""What fuzzing found once: no reader does it again, and a gate over all of it ends with a verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.fuzz.large_models import LARGER
from campaigns.fuzz.mutation_kinds import Input
from campaigns.fuzz.reader_checks import Bench
from campaigns.fuzz.readers import OF_FILES, OF_MODELS, Subject
from campaigns.fuzz.seed_models import furnish
from campaigns.fuzz.supervisor import Result, Run, supervise
from onnxgate.inputs.cases import InputGenerationError
from tests.conftest import ROOT

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "found").glob("*.onnx"))}
CRASHING = {"label-encoder-of-an-optional"}
"""onnx's own inference ends the process; production has it in children."""
GREEDY = {"split-into-2-to-40"}
"""onnx's own inference asks for more memory than a child may have."""
NAMES = [*FILES, *LARGER]


def content(name: str) -> bytes:
    """The bytes of one of them."""
    return FILES[name].read_bytes() if name in FILES else LARGER[name]()


@pytest.fixture(scope="module")
def looked() -> Result:
    """What all readers do with all of them."""
    return supervise(Run(lambda index: Input(0, index, NAMES[index], content(NAMES[index])), len(NAMES)))


@pytest.mark.parametrize("name", NAMES)
def test_no_reader_does_it_again(looked: Result, name: str) -> None:
    """Every reader of ours answers, or says what it documents, within its limits."""
    assert looked.inputs[name] == 1
    assert [each.find for each in looked.found if each.kind == name] == []
    assert name in CRASHING or [each.find for each in looked.foreign if each.kind == name] == []


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_files_are_small(path: Path) -> None:
    """What is larger is made by `larger`."""
    assert path.stat().st_size <= 2048


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What `check --static` says of a folder that holds all of them, and the data that some name."""
    folder = tmp_path_factory.mktemp("found")
    for name in NAMES:
        (folder / f"{name}.onnx").write_bytes(content(name))
    furnish(folder)
    words = [sys.executable, "-m", "onnxgate", "check", "--static", "--output", "json", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(folder / ".cache")}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 1, ended.stderr
    said: dict[str, object] = json.loads(ended.stdout)
    return said


def said_of(report: dict[str, object], name: str) -> list[str]:
    """The rules and messages of one model."""
    findings = report["findings"]
    assert isinstance(findings, list)
    return [f"{each['rule']}: {each['message']}" for each in findings if each["model"] == f"{name}.onnx"]


def test_the_gate_ends(report: dict[str, object]) -> None:
    """It has a verdict, and met no fault of its own; what crashed onnx's inference is one model, and said."""
    undecided = report["undecided"]
    assert isinstance(undecided, list)
    lost = {each["model"]: each["reason"] for each in undecided if "cannot be told" not in each["reason"]}

    assert report["verdict"] == "fail"
    assert "fault of onnxgate" not in json.dumps(report)
    assert lost.keys() <= {f"{name}.onnx" for name in (*CRASHING, *GREEDY)}
    assert all("crashed the process" in each or "of memory" in each for each in lost.values())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "dims-past-64-bits",
            "invalid-model: is not valid ONNX: tensor `w` has more than 9,223,372,036,854,775,807 elements",
        ),
        ("functions-in-a-ring", "invalid-model: is not valid ONNX: its local function `local.f0` calls itself"),
        (
            "graphs-100000-deep",
            "not-a-model: is an unsupported model (its messages are nested more than 100 levels deep)",
        ),
        ("types-100000-deep", "not-a-model: is a damaged model (invalid protobuf message)"),
        ("offset-of-5000-digits", "external-data-corrupt: "),
        ("length-past-64-bits", "external-data-corrupt: "),
        ("location-longer-than-a-path", "external-data-missing: "),
    ],
)
def test_what_is_said(report: dict[str, object], name: str, said: str) -> None:
    """Each is told in words, and not by an exception."""
    found = [each for each in said_of(report, name) if each.startswith(said)]

    assert found, said_of(report, name)


@pytest.mark.parametrize("name", ["functions-that-double", "functions-that-double-differently", "functions-100-deep"])
def test_what_is_not_followed_is_no_pass(report: dict[str, object], name: str) -> None:
    """Local functions that become too much are said to be unpredicted."""
    undecided = report["undecided"]
    assert isinstance(undecided, list)

    assert [each for each in said_of(report, name) if "has no complete prediction: its local functions " in each]
    assert f"{name}.onnx" in {each["model"] for each in undecided}


@pytest.mark.parametrize("name", ["input-of-16-eib", "empty-input-of-2-to-62", "input-of-64-axes"])
def test_what_is_not_generated(tmp_path: Path, name: str) -> None:
    """An input that is too large is one that the user must give."""
    bench = Bench(tmp_path)
    subject = Subject(tmp_path / "m.onnx", tmp_path / "seed.onnx", tmp_path / "scratch")
    subject.path.write_bytes(content(name))
    run: Callable[[str], object] = lambda reader: {**OF_FILES, **OF_MODELS}[reader](subject)  # noqa: E731
    run("structure")
    run("facts")

    with pytest.raises(InputGenerationError, match="input `x`"):
        run("cases")
    assert bench.readers.keys() == {**OF_FILES, **OF_MODELS}.keys()
