"""Adding, shortening and removing `ignore` entries must leave every other byte of the config unchanged."""

from __future__ import annotations

import datetime
import errno
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.errors import StorageError, UsageError
from onnxgate.project.config.globs import matches
from onnxgate.project.config.ignore_entries import (
    IgnoreEdit,
    check_writable,
    edit_ignores,
    escape_glob,
    render_entry,
    render_fingerprints,
    write_config,
)
from onnxgate.project.config.schema import Ignore
from onnxgate.project.toml import decode, loads

FIRST, SECOND, THIRD = (f"{number:016x}" for number in (1, 2, 3))
NEW = Ignore(rule="missing-kernel", model="m.onnx", reason="known", fingerprints=(FIRST,))
TEXT = """\
# ours
models = ["*.onnx"]  # all

[targets.cpu]
runtime = "onnxruntime"

# moves in March
[[ignore]]
rule = "opset-too-new"
reason = '''it "is"
[[ignore]]
so'''

  [[ ignore ]]  # two
  rule = "missing-kernel"
  fingerprints = [  # a list
    "0000000000000001", "0000000000000002",
    "0000000000000003",  # ]
  ] # end
  reason = "known"
# last

[limits]
time-s = 3
"""


def edit(text: str, prefix: tuple[str, ...] = (), *added: Ignore, **listed: tuple[str, ...]) -> str:
    """Return the edited text; keyword `_1` stands for the entry at index 1."""
    change = IgnoreEdit({int(name[1:]): each for name, each in listed.items()}, added)
    return edit_ignores(text.encode(), prefix, change, "onnxgate.toml").decode()


def test_entry_is_added_after_the_last() -> None:
    """Comments, order and blank lines are preserved."""
    head, tail = TEXT.split("# last")
    new = '\n[[ignore]]\nrule = "missing-kernel"\nmodel = "m.onnx"\nfingerprints = ["0000000000000001"]\n'

    assert f'{head}{new}reason = "known"\n# last{tail}' == edit(TEXT, (), NEW)


def test_a_list_is_shortened_in_its_place() -> None:
    """The reason, date and comments of the entry are preserved."""
    start, end = TEXT.index("[  # a list"), TEXT.index(" # end")

    assert f'{TEXT[:start]}["0000000000000002"]{TEXT[end:]}' == edit(TEXT, _1=(SECOND,))


def test_entry_is_removed_with_its_blank_line() -> None:
    """The text after the removed entry is preserved."""
    start, end = TEXT.index("\n  [[ ignore ]]"), TEXT.index("# last")

    assert TEXT[:start] + TEXT[end:] == edit(TEXT, _1=())


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("text", ["[targets.cpu]\nruntime = 'x'\n", TEXT])
def test_taking_out_undoes_adding(text: str, start: str, newline: str) -> None:
    """Removing an added entry restores the file byte for byte, also with CRLF line endings or a byte order mark."""
    before = start + text.replace("\n", newline)
    count = before.count("ignore ]]") + before.count("\n[[ignore]]" if "'''" not in before else "March")
    longer = edit(before, (), NEW)

    assert longer.count("\n") == before.count("\n") + 6
    assert longer.count("\r") == (longer.count("\n") if newline == "\r\n" else 0)
    assert edit(longer, **{f"_{count}": ()}) == before


def test_a_file_without_a_last_newline_gets_one() -> None:
    """The new entry starts on its own line."""
    assert edit("[targets.cpu]\nruntime = 'x'", (), NEW).startswith("[targets.cpu]\nruntime = 'x'\n\n[[ignore]]\n")


def test_an_entry_of_a_pyproject_has_its_prefix() -> None:
    """Only the `[tool.onnxgate]` table of a `pyproject.toml` is edited."""
    text = "[project]\nname = 'x'\n[tool.onnxgate.targets.cpu]\nruntime = 'x'\n[[ignore]]\nno = 1\n"
    made = edit(text, ("tool", "onnxgate"), NEW)

    assert made.startswith(f"{text}\n[[tool.onnxgate.ignore]]\n")
    assert loads(made)["ignore"] == [{"no": 1}]


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("ignore = [{ rule = 'lock-stale', reason = 'x' }]\n", ()),
        ("tool.onnxgate = { models = ['a'] }\n", ("tool", "onnxgate")),
    ],
)
def test_uneditable_text_is_an_error(text: str, prefix: tuple[str, ...]) -> None:
    """Text that cannot be edited reliably is an error."""
    with pytest.raises(UsageError, match="cannot be edited"):
        edit(text, prefix, NEW)


def test_entries_with_other_tables_between_them() -> None:
    """Entries stay in place, and a new entry is inserted after the last one."""
    first = f"[[ignore]]\nrule = 'x'\nreason = 'x'\nfingerprints = ['{FIRST}', '{SECOND}']  # two\n"
    text = f"{first}\n[limits]\ntime-s = 3\n\n[[ignore]]\nrule = 'y'\nreason = 'y'\n# end\n"
    shortened = first.replace(f"['{FIRST}', '{SECOND}']", f'["{SECOND}"]')

    assert edit(text, _0=(SECOND,)) == text.replace(first, shortened)
    assert edit(text, (), NEW) == text.replace("# end\n", f"\n{render_entry(NEW)}\n# end\n")
    assert edit(text, _1=()) == text.replace("\n[[ignore]]\nrule = 'y'\nreason = 'y'\n", "")


def test_inline_entries_cannot_be_shortened() -> None:
    """The editor must not mistake the first array of the file for the fingerprints of an inline entry."""
    text = f"models = ['a']\nignore = [{{ rule = 'x', reason = 'x', fingerprints = ['{FIRST}', '{SECOND}'] }}]\n"

    with pytest.raises(UsageError, match="cannot be edited"):
        edit(text, _0=(SECOND,))


MARKS = st.lists(st.sampled_from([FIRST, SECOND, THIRD]), unique=True, max_size=3).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
IGNORES = st.builds(
    Ignore,
    rule=st.sampled_from(["lock-stale", "missing-kernel"]),
    model=TEXTS,
    reason=TEXTS,
    until=st.none() | st.dates(datetime.date(2000, 1, 1)),
    fingerprints=st.none() | MARKS.filter(bool),
    sha256=st.none() | st.just("a" * 64),
)


@given(st.lists(IGNORES, max_size=3), st.dictionaries(st.sampled_from([0, 1]), MARKS), st.booleans())
def test_edited_file_parses_to_the_intended_entries(
    added: list[Ignore], listed: dict[int, tuple[str, ...]], crlf: bool
) -> None:
    """Whatever strings the entries contain, the edited file parses to the intended entries, and its other values are
    unchanged.
    """
    text = TEXT.replace("so'''\n", f"so'''\nfingerprints = ['{FIRST}']\n")
    data = (text.replace("\n", "\r\n") if crlf else text).encode()
    made = loads(decode(edit_ignores(data, (), IgnoreEdit(listed, added), "onnxgate.toml")))
    own = [dict(each) for index, each in enumerate(loads(text)["ignore"]) if listed.get(index) != ()]

    entries = made.get("ignore", [])

    assert [entry["rule"] for entry in entries] == [each["rule"] for each in own] + [each.rule for each in added]
    assert [entry.get("reason") for entry in entries][len(own) :] == [each.reason for each in added]
    assert made["limits"] == {"time-s": 3}


@given(st.text(min_size=1))
def test_a_glob_of_a_path_matches_it_and_can_be_written(path: str) -> None:
    """Brackets and stars in a path are matched literally, and a rendered entry never contains a workflow command."""
    glob = escape_glob(path)
    text = render_entry(Ignore(rule="lock-stale", model=glob, reason="x"))

    assert matches(glob, path) or path.startswith("./")
    assert loads(text)["ignore"][0].get("model", "**") == glob
    assert "##[" not in text
    assert not matches(glob, f"{path}x")


def test_star_in_a_path_matches_only_a_star() -> None:
    """A star in a path matches only a star."""
    assert not matches(escape_glob("a*.onnx"), "ab.onnx")
    assert not matches(escape_glob("[ab].onnx"), "a.onnx")


def test_many_fingerprints_have_a_line_each() -> None:
    """Each fingerprint is on its own line, so that a diff shows each change separately."""
    many = tuple(f"{number:016x}" for number in range(5))

    assert render_fingerprints(many).count("\n") == 6
    assert loads(f"x = {render_fingerprints(many)}")["x"] == list(many)


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    """A read-only file is not replaced even if its folder is writable."""
    path = tmp_path / "onnxgate.toml"
    path.write_text("x = 1\n")
    check_writable(path)
    path.chmod(0o444)

    with pytest.raises(StorageError, match="is read-only"):
        check_writable(path)


def test_a_full_disk_is_a_fault_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is 3, the hint names the remedy, and the config is unchanged."""
    path = tmp_path / "onnxgate.toml"
    path.write_bytes(b"x = 1\n")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(StorageError) as caught:
        write_config(path, b"x = 2\n", b"x = 1\n")

    assert caught.value.message == "cannot write to `onnxgate.toml`: no space left on device"
    assert caught.value.hint == "free up disk space"
    assert path.read_bytes() == b"x = 1\n"


def test_writing_keeps_mode_and_link(tmp_path: Path) -> None:
    """The target of a symbolic link is replaced atomically, and no temporary file is left."""
    path = tmp_path / "real.toml"
    path.write_bytes(b"x = 1\n")
    path.chmod(0o640)
    link = tmp_path / "onnxgate.toml"
    link.symlink_to(path)
    write_config(link, b"x = 2\n", b"x = 1\n")

    assert (path.read_bytes(), path.stat().st_mode & 0o777, link.is_symlink()) == (b"x = 2\n", 0o640, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["onnxgate.toml", "real.toml"]


def test_concurrent_edit_is_not_overwritten(tmp_path: Path) -> None:
    """A concurrent edit of the config is not overwritten."""
    path = tmp_path / "onnxgate.toml"
    path.write_bytes(b"x = 3\n")

    with pytest.raises(UsageError, match=re.escape("changed during the check")):
        write_config(path, b"x = 2\n", b"x = 1\n")
    assert path.read_bytes() == b"x = 3\n"
