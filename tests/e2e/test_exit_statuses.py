"""What the exit status says when several things hold: 130, then 2, then 1, then 3; and what is no failure."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Variables
from tests.e2e.test_offline import PAGE, PASSTHROUGH
from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository, brief

NEWEST = '[targets.newest]\nruntime = "onnxruntime>=1.31,<1.32"\n'
NOWHERE = "onnxruntime 1.31.1"
FINDING = ("error", "not-a-model", "models/page.onnx")


@pytest.fixture
def broken(small: Repository, cold: Variables) -> Repository:
    """A repository with one model that is sound and cannot be run here, and one that is a page."""
    write(small.folder / "models" / "page.onnx")
    small.run("lock", "--offline")
    small.write("models/page.onnx", PAGE)
    return small.given(**cold)


def test_closed_before_undecided(broken: Repository) -> None:
    """1 and 3 are 1; both are said."""
    report = broken.report("--offline", status=1)

    assert [brief(each) for each in report["findings"]] == [FINDING]
    assert [each["model"] for each in report["undecided"]] == ["models/small.onnx"] * 2


def test_undecided(broken: Repository) -> None:
    """What is broken counts only where it is asked for; the last line says what was not."""
    ended = broken.run("check", "--offline", "models/small.onnx", status=3)
    last = ended.out.splitlines()[-1]

    assert last.startswith("undecided: 1 model on 2 runtimes")
    assert "1 other model not asked for" in last


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("onnxgate.toml", "sizes", "sises", "did you mean `sizes`"),
        ("onnxgate.toml", "onnxruntime>=1.18", "onnxruntime=>1.18", "`targets.server.runtime`"),
        ("onnxgate.toml", "[targets", 'required-version = ">=99"\n[targets', "requires onnxgate `>=99`"),
        ("onnxgate.lock", "version = 1\n", "version = 99\n", "this onnxgate supports up to 1"),
        ("onnxgate.lock", "[targets", "<<<<<<< HEAD\n[targets", "`onnxgate.lock`"),
    ],
)
def test_set_up_before_verdict(broken: Repository, name: str, old: str, new: str, said: str) -> None:
    """A config or a lock that is wrong is 2, whatever else is broken; nothing is judged by it."""
    text = broken.read(name)
    assert old in text
    broken.write(name, text.replace(old, new, 1))
    ended = broken.run("check", status=2)

    assert said in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--stage", "runs"),
        ("--static", "--stage", "file"),
        ("--output", "xml"),
        ("nowhere.onnx",),
        ("--static", "--output", "json=models"),
        ("--static", "--output", "json=models/page.onnx/report.json"),
    ],
)
def test_usage_before_verdict(broken: Repository, arguments: tuple[str, ...]) -> None:
    """So is a command line that asks for what there is not; it is no bug of ours."""
    ended = broken.run("check", *arguments, status=2)

    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert "bug" not in ended.err


@pytest.mark.parametrize(
    ("fail_on", "level", "status"),
    [
        ("error", "error", 1),
        ("error", "warning", 0),
        ("warning", "error", 1),
        ("warning", "warning", 1),
        ("warning", "note", 0),
        ("never", "error", 0),
    ],
)
def test_fail_on(small: Repository, fail_on: str, level: str, status: int) -> None:
    """The lowest level that closes the gate is the user's choice; what was found is said all the same."""
    write(small.folder / "models" / "through.onnx", PASSTHROUGH)
    small.write("onnxgate.toml", small.read("onnxgate.toml") + f'[rules]\ninput-passthrough = "{level}"\n')
    small.run("lock", "--offline")
    report = small.report("--static", "--fail-on", fail_on, status=status)

    assert [brief(each) for each in report["findings"]] == [(level, "input-passthrough", "models/through.onnx")]
    assert report["verdict"] == ("fail" if status else "pass")


def test_never_failing_is_no_verdict(broken: Repository) -> None:
    """`--fail-on never` does not turn what could not be done into a pass."""
    report = broken.report("--offline", "--fail-on", "never", status=3)

    assert [brief(each) for each in report["findings"]] == [FINDING]
    assert report["verdict"] == "undecided"


@pytest.fixture
def elsewhere(small: Repository) -> Repository:
    """A repository that also promises a release that has no wheel for any machine of these tests."""
    small.write("onnxgate.toml", small.read("onnxgate.toml") + NEWEST)
    shutil.copy(ROOT / PROJECTS / "broken" / "onnxgate.lock", small.folder)
    small.run("lock", "--offline")
    text = small.read("onnxgate.lock")
    small.write("onnxgate.lock", re.sub(r"(onnxruntime-1\.31\.1-cp\d+-cp\d+-)[\w.]+\.whl", r"\1any_s390x.whl", text))
    assert "any_s390x" in small.read("onnxgate.lock")
    return small


@pytest.mark.index
def test_unavailable_here(elsewhere: Repository) -> None:
    """A promise that cannot be proven on this platform is undecided, and says what helps; the others are judged."""
    report = elsewhere.report(status=3)
    states = {cell["runtime"]: cell["state"] for cell in report["cells"]}

    assert states == {**dict.fromkeys(("onnxruntime 1.18.1", "onnxruntime 1.19.2"), "pass"), NOWHERE: "undecided"}
    assert {each["runtime"] for each in report["undecided"]} == {NOWHERE}
    assert "`onnxruntime 1.31.1` has no wheel for " in report["undecided"][0]["reason"]
    assert "set `required = false`" in report["undecided"][0]["hint"]


@pytest.mark.index
def test_not_required(elsewhere: Repository) -> None:
    """The same for a target that need not be kept is skipped, visibly, and is no failure."""
    elsewhere.edit("onnxgate.toml", NEWEST, f"{NEWEST}required = false\n")
    report = elsewhere.report()
    said = elsewhere.run("check").out

    assert (report["verdict"], report["undecided"]) == ("pass", [])
    assert {each["runtime"] for each in report["skipped"]} == {NOWHERE}
    assert [cell["state"] for cell in report["cells"] if cell["runtime"] == NOWHERE] == ["skipped"]
    assert "`onnxruntime 1.31.1` has no wheel for " in said
    assert "1 skipped" in said.splitlines()[-1]


def test_a_finding_on_what_is_not_required(small: Repository) -> None:
    """What is known to be broken closes the gate also for such a target: only what cannot be done is skipped."""
    small.edit("onnxgate.toml", "[[model]]", "required = false\n\n[[model]]")
    model = parse()
    model.ir_version = 13
    write(small.folder / "models" / "small.onnx", model)
    small.run("lock", "--offline")
    report = small.report("--static", status=1)

    assert [brief(each) for each in report["findings"]] == [("error", "ir-version-too-new", "models/small.onnx")]
