"""Precedence of exit statuses (130, 2, 1, 3), and results that do not fail a check."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Variables
from tests.e2e.test_offline import PAGE, PASSTHROUGH
from tests.harness.locks import with_digests
from tests.harness.models import parse, write
from tests.harness.repositories.user_repository import Repository, brief

NEWEST = '[targets.newest]\nruntime = "onnxruntime>=1.31,<1.32"\n'
NOWHERE = "onnxruntime 1.31.1"
FINDING = ("error", "not-a-model", "models/page.onnx")


@pytest.fixture
def broken(small: Repository, cold: Variables) -> Repository:
    """Return a repository with a valid model that cannot be run here and an HTML page named as a model."""
    write(small.folder / "models" / "page.onnx")
    small.run("lock", "--offline")
    small.write("models/page.onnx", PAGE)
    return small.with_environment(**cold)


def test_closed_before_undecided(broken: Repository) -> None:
    """A failed and an undecided model end with status 1, and both are reported."""
    report = broken.report("--offline", status=1)

    assert [brief(finding) for finding in report["findings"]] == [FINDING]
    assert [entry["model"] for entry in report["undecided"]] == ["models/small.onnx"] * 2


def test_undecided(broken: Repository) -> None:
    """A failing model that was not selected does not affect the status; the last line counts it."""
    result = broken.run("check", "--offline", "models/small.onnx", status=3)
    last = result.out.splitlines()[-1]

    assert last.startswith("undecided: 1 model on 2 runtimes")
    assert "1 model not selected" in last


def test_files_that_select_no_model(small: Repository) -> None:
    """Hooks pass files that are not models: the check passes, and the last line states that no model was checked."""
    small.write("README.md", "")
    last = small.run("check", "README.md").out.splitlines()[-1]

    assert last.startswith("pass: 0 models; the paths select no model; 1 model not selected")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("onnxgate.toml", "sizes", "sises", "did you mean `sizes`"),
        ("onnxgate.toml", "onnxruntime>=1.18", "onnxruntime=>1.18", "`targets.server.runtime`"),
        ("onnxgate.toml", "[targets", 'required-version = ">=99"\n[targets', "requires onnxgate `>=99`"),
        ("onnxgate.lock", "version = 1\n", "version = 99\n", "this version of onnxgate reads up to 1"),
        ("onnxgate.lock", "[targets", "<<<<<<< HEAD\n[targets", "`onnxgate.lock`"),
    ],
)
def test_set_up_before_verdict(broken: Repository, name: str, old: str, new: str, message: str) -> None:
    """An invalid config or lock ends with status 2 before any model is checked."""
    text = broken.read(name)
    assert old in text
    broken.write(name, text.replace(old, new, 1))
    result = broken.run("check", status=2)

    assert message in result.err
    assert result.out == ""


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
    """An invalid command line ends with status 2 and is not reported as a bug."""
    result = broken.run("check", *arguments, status=2)

    assert result.out == ""
    assert result.err.startswith("error: ")
    assert "bug" not in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "--static", "--case", "sample"), "`--case` requires the stage `runtime` or `parity`"),
        (("check", "--stage", "export", "--seed", "4"), "`--seed` requires the stage `runtime` or `parity`"),
        (
            ("check", "--target", "onnxruntime>=1.18", "--config", "onnxgate.toml"),
            "`--target` and `--config` cannot be",
        ),
        (("check", "--target", "onnxruntime>=1.18", "--no-ignores"), "`--no-ignores` requires a config"),
        (("check", "--against", ""), "`--against` is empty"),
        (("check", "--stage", ""), "`--stage` has an empty name"),
        (("check", "--stage", "file,"), "`--stage` has an empty name"),
        (("lock", "--fail-on", "warning"), "`--fail-on` requires `--preview`"),
        (("lock", "--check", "--no-ignores"), "`--no-ignores` requires `--preview`"),
        (("runtimes", "prune", "--all", "--lock", "onnxgate.lock"), "`--all` cannot be combined with"),
        (("runtimes", "prune", "--all", "--older-than", "1d"), "`--all` cannot be combined with"),
        (("diff", "--textconv", "--exit-code", "models/small.onnx"), "`--textconv` takes one file"),
    ],
)
def test_an_option_without_effect_is_refused(small: Repository, arguments: tuple[str, ...], message: str) -> None:
    """An option that would do nothing is a usage error: whoever sets it expects an effect."""
    result = small.run(*arguments, status=2)

    assert result.out == ""
    assert result.err.startswith(f"error: {message}")


def test_repeated_stages_are_joined(small: Repository) -> None:
    """`--stage` can be repeated, or name several stages."""
    assert small.report("--stage", "file", "--stage", "support")["stages"] == ["file", "support"]
    assert small.report("--stage", "file,support")["stages"] == ["file", "support"]


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
    """`--fail-on` sets the lowest level that fails the check; all findings are still reported."""
    write(small.folder / "models" / "through.onnx", PASSTHROUGH)
    small.write("onnxgate.toml", small.read("onnxgate.toml") + f'[rules]\ninput-passthrough = "{level}"\n')
    small.run("lock", "--offline")
    report = small.report("--static", "--fail-on", fail_on, status=status)

    assert [brief(finding) for finding in report["findings"]] == [(level, "input-passthrough", "models/through.onnx")]
    assert report["verdict"] == ("fail" if status else "pass")


def test_fail_on_never_keeps_undecided(broken: Repository) -> None:
    """`--fail-on never` does not turn an undecided result into a pass."""
    report = broken.report("--offline", "--fail-on", "never", status=3)

    assert [brief(finding) for finding in report["findings"]] == [FINDING]
    assert report["verdict"] == "undecided"


@pytest.fixture
def elsewhere(small: Repository) -> Repository:
    """Return a repository that requires a release without a wheel for any test machine."""
    small.write("onnxgate.toml", small.read("onnxgate.toml") + NEWEST)
    shutil.copy(ROOT / PROJECTS / "broken" / "onnxgate.lock", small.folder)
    small.run("lock", "--offline")
    text = small.read("onnxgate.lock")
    other = re.sub(r"(onnxruntime-1\.31\.1-cp\d+-cp\d+-)[\w.]+\.whl", r"\1any_s390x.whl", text)
    small.write("onnxgate.lock", with_digests(other))
    assert "any_s390x" in small.read("onnxgate.lock")
    return small


@pytest.mark.index
def test_unavailable_here(elsewhere: Repository) -> None:
    """A release that cannot be installed on this platform is undecided, with a hint; other releases are checked."""
    report = elsewhere.report(status=3)
    states = {cell["runtime"]: cell["state"] for cell in report["cells"]}

    assert states == {**dict.fromkeys(("onnxruntime 1.18.1", "onnxruntime 1.19.2"), "pass"), NOWHERE: "undecided"}
    assert {entry["runtime"] for entry in report["undecided"]} == {NOWHERE}
    assert "`onnxruntime 1.31.1` has no wheel for " in report["undecided"][0]["reason"]
    assert "set `required = false`" in report["undecided"][0]["hint"]


@pytest.mark.index
def test_not_required(elsewhere: Repository) -> None:
    """For a target that is not required, the release is reported as skipped and the check passes."""
    elsewhere.edit("onnxgate.toml", NEWEST, f"{NEWEST}required = false\n")
    report = elsewhere.report()
    output = elsewhere.run("check").out

    assert (report["verdict"], report["undecided"]) == ("pass", [])
    assert {entry["runtime"] for entry in report["skipped"]} == {NOWHERE}
    assert [cell["state"] for cell in report["cells"] if cell["runtime"] == NOWHERE] == ["skipped"]
    assert "`onnxruntime 1.31.1` has no wheel for " in output
    assert "1 skipped" in output.splitlines()[-1]


def test_finding_on_an_optional_target_fails(small: Repository) -> None:
    """A finding fails the check even if the target is not required: only unavailable releases are skipped."""
    small.edit("onnxgate.toml", "[[model]]", "required = false\n\n[[model]]")
    model = parse()
    model.ir_version = 13
    write(small.folder / "models" / "small.onnx", model)
    small.run("lock", "--offline")
    report = small.report("--static", status=1)

    assert [brief(finding) for finding in report["findings"]] == [("error", "ir-version-too-new", "models/small.onnx")]


@pytest.mark.parametrize("name", ["models/small.onnx", "onnxgate.lock", "onnxgate.toml"])
def test_a_report_does_not_replace_what_is_checked(small: Repository, name: str) -> None:
    """A mistake in `--output` must not delete a model, the lock or the config."""
    before = (small.folder / name).read_bytes()
    result = small.run("check", "--static", "--output", f"json={name}", status=2)

    assert result.err == f"error: `--output` would overwrite `{name}`\nhint: choose another file for the report\n"
    assert (small.folder / name).read_bytes() == before
