"""An existing repository adopts the gate with one command and then fails only on new findings."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Sequence
from typing import Any

import pytest

from onnxgate.project.toml import loads
from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository, brief

MODELS = 40
OF_EACH = [
    ("error", "ir-version-mismatch"),
    ("error", "missing-kernel"),
    ("error", "opset-mismatch"),
    ("error", "unknown-operator"),
    ("error", "unknown-operator"),
]
PINS = 'ir-version = "<=7"\nopset = { "ai.onnx" = 17 }\n'
STATIC = ("check", "--static")
Entry = dict[str, Any]


def write_model(
    repository: Repository,
    name: str,
    operators: Sequence[str] = ("Foo", "Bar"),
    *,
    before: int = 0,
    pinned: bool = False,
) -> None:
    """Write a model with unsupported operators after `before` valid layers."""
    layers = "".join(f"[node_Abs_{n}] a{n + 1} = Abs (a{n}) " for n in range(before))
    number = before
    nodes = f"[node_Det_{number}] d = Det (a{number}) "
    for operator in operators:
        number += 1
        nodes += f"[node_{operator}_{number}] v_{number} = {operator} (z) "
    text = f"g (double[N, 4, 4] a0, float[N] z) => (double[N] d) {{ {layers}{nodes} }}"
    head = '<ir_version: 7, opset_import: ["" : 17]>\n' if pinned else '<ir_version: 8, opset_import: ["" : 18]>\n'
    write(repository.folder / "models" / name, parse(text, head))


def relock(repository: Repository) -> None:
    """Update the lock."""
    repository.run("lock", "--offline")


def counted(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the findings that are not ignored."""
    return [brief(finding) for finding in report["findings"] if not finding["ignored"]]


def entries(repository: Repository) -> list[Entry]:
    """Return the `[[ignore]]` entries of the config."""
    actual: list[Entry] = loads(repository.read("onnxgate.toml")).get("ignore", [])
    return actual


@pytest.fixture
def old(small: Repository) -> Repository:
    """Return a repository with 200 findings."""
    for number in range(MODELS):
        write_model(small, f"m{number:02}.onnx")
    (small.folder / "models" / "small.onnx").unlink()
    small.write("onnxgate.toml", f"# ours\n{PINS}{small.read('onnxgate.toml')}# the end\n")
    relock(small)
    commit(small.folder)
    return small


@pytest.fixture
def adopted(old: Repository) -> Repository:
    """Return the repository after it adopted the gate."""
    old.run(*STATIC, "--write-ignores")
    commit(old.folder)
    return old


def test_write_ignores_accepts_all_findings(old: Repository) -> None:
    """The command appends entries for all findings, including hidden ones; a second run changes nothing."""
    before = old.read("onnxgate.toml")
    actual = counted(old.report("--static", status=1))
    output = old.run(*STATIC, "--write-ignores").out
    after = old.read("onnxgate.toml")
    report = old.report("--static")

    assert sorted(actual) == sorted((*each, f"models/m{n:02}.onnx") for n in range(MODELS) for each in OF_EACH)
    assert len(actual) == 200
    assert after.startswith(before)
    assert "ignores in `onnxgate.toml`: added 240 findings" in output
    assert output.splitlines()[-1].startswith(f"pass: {MODELS} models on 2 runtimes: 240 ignored; ")
    assert (report["counts"]["ignored"], counted(report), report["undecided"]) == (240, [], [])
    assert sum(len(entry["fingerprints"]) for entry in entries(old)) == 240
    assert {entry["reason"] for entry in entries(old)} == {"present when onnxgate was adopted"}
    again = old.run(*STATIC, "--write-ignores").out
    assert "ignores in `onnxgate.toml`: no changes" in again
    assert old.read("onnxgate.toml") == after


def test_new_finding_fails_the_check(adopted: Repository) -> None:
    """A finding in a new model, a second one of an accepted rule and an unlocked content each fail the check."""
    write_model(adopted, "new.onnx", ("Foo",), pinned=True)
    relock(adopted)
    new = [("error", "missing-kernel", "models/new.onnx"), ("error", "unknown-operator", "models/new.onnx")]
    assert counted(adopted.report("--static", status=1)) == new
    (adopted.folder / "models" / "new.onnx").unlink()

    write_model(adopted, "m07.onnx", ("Foo", "Bar", "Baz"))
    relock(adopted)
    report = adopted.report("--static", status=1)
    assert counted(report) == [("error", "unknown-operator", "models/m07.onnx")]
    (message,) = (finding["message"] for finding in report["findings"] if not finding["ignored"])
    assert message.startswith("`Baz` does not exist in opset")

    write_model(adopted, "m07.onnx", before=1)
    assert ("error", "model-changed", "models/m07.onnx") in counted(adopted.report("--static", status=1))


def test_new_export_without_new_faults_passes(adopted: Repository) -> None:
    """Changed node names, numbers and lines cause no new findings and no unused ignores."""
    for number in range(MODELS):
        write_model(adopted, f"m{number:02}.onnx", ("Bar", "Foo"), before=1 + number % 3)
    write(adopted.folder / "models" / "a-first-one.onnx", parse(head='<ir_version: 7, opset_import: ["" : 17]>\n'))
    adopted.write("onnxgate.toml", "# more\n# words\n" + adopted.read("onnxgate.toml"))
    relock(adopted)

    assert counted(adopted.report("--static")) == []


def test_resolved_finding_is_a_note_until_its_entry_is_removed(adopted: Repository) -> None:
    """A repaired fault leaves only a note, and `--write-ignores` removes exactly the outdated fingerprints."""
    before = adopted.read("onnxgate.toml")
    write_model(adopted, "m03.onnx", ("Bar",))
    write(adopted.folder / "models" / "m04.onnx", parse(head='<ir_version: 7, opset_import: ["" : 17]>\n'))
    relock(adopted)
    report = adopted.report("--static", "--fail-on", "warning")
    notes = [finding["message"] for finding in report["findings"] if not finding["ignored"]]

    assert {brief(finding) for finding in report["findings"] if not finding["ignored"]} == {
        ("note", "ignore-unused", "")
    }
    entry = "the `[[ignore]]` entry of"
    assert f"{entry} `unknown-operator` for `models/m03.onnx` lists 2 findings, of which 1 no longer exists" in notes
    assert f"{entry} `missing-kernel` for `models/m04.onnx` no longer matches a finding" in notes
    adopted.run(*STATIC, "--write-ignores", "models/m05.onnx")
    assert adopted.read("onnxgate.toml") == before  # entries of models that were not selected are kept
    adopted.run(*STATIC, "--write-ignores")
    assert counted(adopted.report("--static")) == []
    assert [each["rule"] for each in entries(adopted) if each["model"] == "models/m04.onnx"] == []
    lines = {*before.splitlines()} - {*adopted.read("onnxgate.toml").splitlines()}
    assert all(re.search("fingerprints = |models/m0[34]", line) for line in lines)


def test_edited_reasons_and_dates_are_preserved(adopted: Repository) -> None:
    """Edited reasons and dates are kept, and a new finding gets a separate entry."""
    text = adopted.read("onnxgate.toml").replace(
        'reason = "present when onnxgate was adopted"', 'reason = "moves in March" # soon\nuntil = 2999-03-31', 1
    )
    adopted.write("onnxgate.toml", text)
    adopted.run(*STATIC, "--write-ignores")
    assert adopted.read("onnxgate.toml") == text

    edited = entries(adopted)[0]
    assert edited["rule"] == "invalid-model"
    write_model(adopted, "m00.onnx", ("Foo", "Bar", "Baz"))
    relock(adopted)
    adopted.run(*STATIC, "--write-ignores", "--until", "2999-12-31")
    added = [entry for entry in entries(adopted) if str(entry.get("until")) == "2999-12-31"]
    assert edited in entries(adopted)
    assert [(each["rule"], len(each["fingerprints"])) for each in added] == [("unknown-operator", 1)]


def test_an_end_date_is_not_prolonged(adopted: Repository) -> None:
    """A finding whose `until` date has passed fails the check and is not accepted a second time."""
    text = adopted.read("onnxgate.toml")
    adopted.write("onnxgate.toml", text.replace('adopted"\n', 'adopted"\nuntil = 2026-01-01\n', 1))
    result = adopted.run(*STATIC, "--write-ignores", status=1)

    assert "`ignore-expired` cannot be ignored" in result.out
    assert "1 finding is no longer ignored: the `until` date has passed" in result.out
    assert adopted.read("onnxgate.toml").count("until") == 1


NARROWED = "g (float[N, 4] x, float[N, 4] old) => (float[N, 4] y) { y = Add(x, old) }"
CHANGED = "g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"
CHANGED_AGAIN = "g (float[N, 4] z, float[N, 4] w) => (float[N, 4] y) { y = Mul(z, w) }"


def test_intended_break_is_accepted_once(small: Repository) -> None:
    """An intended break is accepted for one exact content; after the merge the entry is a note."""
    write(small.folder / "models" / "small.onnx", NARROWED)
    relock(small)
    base = commit(small.folder)
    write(small.folder / "models" / "small.onnx", CHANGED)
    relock(small)
    against = ("--static", "--against", base)
    assert counted(small.report(*against, status=1))[0] == ("error", "input-removed", "models/small.onnx")
    small.run("check", *against, "--write-ignores")
    (entry,) = entries(small)
    merged = commit(small.folder)
    assert (entry["rule"], len(entry["sha256"])) == ("input-removed", 64)

    after = ("--static", "--fail-on", "warning", "--against", merged)
    (note,) = [finding for finding in small.report(*after)["findings"] if finding["rule"] == "ignore-unused"]
    assert note["level"] == "note"
    assert note["message"].endswith("no longer matches a finding")
    assert small.report("--static", "--fail-on", "warning")["findings"] == []  # not known without a baseline

    write(small.folder / "models" / "small.onnx", CHANGED_AGAIN)
    relock(small)
    report = small.report("--static", "--against", base, status=1)
    (done,) = [finding["message"] for finding in report["findings"] if finding["rule"] == "ignore-unused"]
    assert done.endswith("applies to a `sha256` that no model has")
    assert any(level == "error" for level, _, _ in counted(report))
    small.run("check", "--static", "--against", merged, "--write-ignores")
    assert entry["sha256"] not in {each.get("sha256") for each in entries(small)}


def test_a_snippet_accepts_its_finding(old: Repository) -> None:
    """The printed snippet is valid TOML, requires a reason and accepts only its finding."""
    old.run("check", "--static", "models/m00.onnx", status=1)
    out = old.run("check", "--static", "--show-ignores", "models/m00.onnx", status=1).out
    match = re.search(r" +\[\[ignore\]\]\n +rule = \"unknown-operator\"\n(?: +\S.*\n)+? +reason = .*\n", out)
    assert match is not None
    text = old.read("onnxgate.toml")
    old.write("onnxgate.toml", text + match[0])
    assert "expected a reason" in old.run(*STATIC, status=2).err
    old.write("onnxgate.toml", text + match[0].replace('""', '"known"'))
    report = old.report("--static", "models/m00.onnx", status=1)

    assert [finding["rule"] for finding in report["findings"] if finding["ignored"]] == ["unknown-operator"]
    assert len(counted(report)) == 4


@pytest.mark.parametrize("against", ["HEAD", "HEAD^1"])
def test_the_hint_of_a_change_prints_its_entry(small: Repository, against: str) -> None:
    """Outside CI, the entry that accepts a change is printed only for the same baseline; the hint names it."""
    write(small.folder / "models" / "small.onnx", NARROWED)
    relock(small)
    commit(small.folder)
    write(small.folder / "models" / "small.onnx", CHANGED)
    relock(small)
    if against == "HEAD^1":
        commit(small.folder)
    findings = small.report("--static", "--against", against, status=1)["findings"]
    (finding,) = [finding for finding in findings if finding["rule"] == "input-removed"]
    (command,) = re.findall(r"`onnxgate (check [^`]+)`", finding["fix"])
    out = small.run(*shlex.split(command), "--static", status=1).out

    assert f'fingerprints = ["{finding["fingerprint"]}"]' in out


def test_a_pyproject_with_other_line_ends_is_written_too(old: Repository) -> None:
    """Entries are appended under `[tool.onnxgate]` with the line endings of the file."""
    config = old.read("onnxgate.toml").replace("[targets", "[tool.onnxgate.targets")
    config = config.replace("[[model", "[[tool.onnxgate.model").replace("# ours", "[tool.onnxgate]")
    text = f"[project]\nname = 'x'\n{config}[tool.other]\nx = 1\n".replace("\n", "\r\n").encode()
    (old.folder / "onnxgate.toml").unlink()
    (old.folder / "pyproject.toml").write_bytes(text)
    old.run(*STATIC, "--write-ignores")
    written = (old.folder / "pyproject.toml").read_bytes()

    assert written.startswith(text + b"\r\n[[tool.onnxgate.ignore]]\r\n")
    assert written.count(b"\n") == written.count(b"\r\n")
    assert counted(old.report("--static")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--write-ignores", "--no-ignores"), "`--write-ignores` and `--no-ignores` cannot be combined"),
        (("--write-ignores", "--shard", "1/2"), "`--write-ignores` and `--shard` cannot be combined"),
        (("--write-ignores", "--until", "2020-01-01"), "is in the past"),
        (("--until", "2999-01-01"), "requires `--write-ignores`"),
        (("--write-ignores", "--target", "onnxruntime>=1.18"), "requires a config"),
        (("--show-ignores", "--target", "onnxruntime>=1.18"), "requires a config"),
    ],
)
def test_incompatible_options_are_rejected(small: Repository, arguments: tuple[str, ...], message: str) -> None:
    """Options that cannot be combined are rejected before anything is checked or written."""
    before = small.read("onnxgate.toml")

    assert message in small.run(*STATIC, *arguments, status=2).err
    assert small.read("onnxgate.toml") == before


def test_read_only_config_is_not_modified(old: Repository) -> None:
    """A read-only config and one with inline entries are not modified."""
    config = old.folder / "onnxgate.toml"
    config.chmod(stat.S_IRUSR)
    assert "is read-only" in old.run(*STATIC, "--write-ignores", status=3).err
    config.chmod(stat.S_IRUSR | stat.S_IWUSR)
    inline = "ignore = [{ rule = 'lock-stale', reason = 'x' }]\n" + old.read("onnxgate.toml")
    old.write("onnxgate.toml", inline)

    assert "cannot be edited automatically" in old.run(*STATIC, "--write-ignores", status=2).err
    assert old.read("onnxgate.toml") == inline
    assert [path.name for path in old.folder.glob(".onnxgate*")] == []


def test_stale_lock_is_not_accepted(old: Repository) -> None:
    """A stale lock is still an error with a hint, and nothing is written without a lock."""
    old.edit("onnxgate.toml", ">=1.18,<1.20", ">=1.18,<1.19")
    result = old.run(*STATIC, "--write-ignores", status=1)
    assert "`lock-stale` cannot be ignored" in result.out
    assert "lock-stale" not in old.read("onnxgate.toml")
    (old.folder / "onnxgate.lock").unlink()
    written = old.read("onnxgate.toml")

    old.run(*STATIC, "--write-ignores", status=2)
    assert old.read("onnxgate.toml") == written


def test_unreadable_models_are_not_accepted(old: Repository) -> None:
    """Git LFS pointers are undecided, and files that are not models cannot be ignored."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 9\n"
    old.write("models/m00.onnx", pointer)
    old.write("models/m01.onnx", "<!DOCTYPE html><html></html>")
    result = old.run(*STATIC, "--write-ignores", status=1)

    assert "the file is a Git LFS pointer (content not fetched)" in result.out
    assert "`not-a-model` cannot be ignored: repair the file, or add it to `exclude`" in result.out
    assert not {"lfs-pointer", "not-a-model"} & {entry["rule"] for entry in entries(old)}
    assert "models/m02.onnx" in {entry["model"] for entry in entries(old)}


def test_undecided_results_stay_undecided(old: Repository, cold: dict[str, Any]) -> None:
    """Known faults are accepted, but undecided results still determine the exit status."""
    offline = old.with_environment(**cold)
    result = offline.run("check", "--offline", "--write-ignores", "models/m00.onnx", status=3)

    assert {entry["model"] for entry in entries(old)} == {"models/m00.onnx"}
    assert "undecided" not in {entry["rule"] for entry in entries(old)}
    assert "cannot be ignored: the model is not the cause" in result.out


def write_unfed_model(repository: Repository, name: str, rank: str, operator: str = "Add") -> None:
    """Write a model whose inputs can only be generated if `rank` declares the rank of one of them."""
    text = f"g (float[N, 4] x, float{rank} z) => (float[N, 4] y) {{ y = {operator} (x, z) }}"
    model = parse(text, '<ir_version: 8, opset_import: ["" : 17]>\n')
    if not rank:
        model.graph.input[1].type.tensor_type.ClearField("shape")
    write(repository.folder / "models" / name, model)


def test_a_model_that_cannot_be_decided_is_accepted_with_a_reason(small: Repository) -> None:
    """An undecided check is accepted like a finding, stays visible, and its entry is a change of the policy."""
    write_unfed_model(small, "unfed.onnx", "")
    relock(small)
    commit(small.folder)
    before = small.report(status=3)
    small.run("check", "--write-ignores")
    report = small.report("--against", "HEAD")
    accepted = [finding for finding in report["findings"] if finding["rule"] == "undecided"]
    cells = {cell["state"] for cell in report["cells"] if cell["model"] == "models/unfed.onnx"}
    weakened = [it["message"] for it in report["findings"] if it["rule"] == "policy-weakened"]

    assert [it["model"] for it in before["undecided"]] == ["models/unfed.onnx"] * 2
    assert {it["fingerprint"] for it in before["undecided"]} == {accepted[0]["fingerprint"]}
    assert (len(accepted), report["undecided"], cells) == (1, [], {"warning"})
    assert "input `z` cannot be generated" in accepted[0]["message"]
    assert (accepted[0]["ignored"], accepted[0]["newly_ignored"]) == ("present when onnxgate was adopted", True)
    assert any(message.startswith("an `[[ignore]]` entry of `undecided`") for message in weakened)
    small.report("--no-ignores", status=3)


def test_an_entry_of_an_undecided_check_ends_with_its_date_and_its_cause(small: Repository) -> None:
    """After its last day, the entry is an error; once the model can be decided, the entry is unused."""
    write_unfed_model(small, "unfed.onnx", "")
    relock(small)
    small.run("check", "--write-ignores", "--until", "2999-12-31")
    small.edit("onnxgate.toml", "2999-12-31", "2020-01-01")
    expired = small.report(status=1)
    small.edit("onnxgate.toml", "2020-01-01", "2999-12-31")
    write_unfed_model(small, "unfed.onnx", "[N, 4]")
    relock(small)
    decided = small.report()
    small.run("check", "--write-ignores")

    assert ("error", "ignore-expired", "") in counted(expired)
    assert [it["model"] for it in expired["undecided"]] == ["models/unfed.onnx"] * 2
    assert {rule for _, rule, _ in counted(decided)} == {"ignore-unused"}
    assert entries(small) == []


def test_an_accepted_undecided_check_does_not_hide_a_failed_load(small: Repository) -> None:
    """The model is still loaded on each release, and a refusal fails the check."""
    small.write("onnxgate.toml", small.read("onnxgate.toml") + UNDECIDED_ENTRY)
    write_unfed_model(small, "unfed.onnx", "", "Foo")
    relock(small)
    report = small.report(status=1)

    assert ("error", "unknown-operator", "models/unfed.onnx") in counted(report)


UNDECIDED_ENTRY = """
[[ignore]]
rule = "undecided"
model = "models/unfed.onnx"
reason = "needs real audio"
"""
