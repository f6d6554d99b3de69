"""Temporary folders and files are always removed, even if the process that created them was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxgate.core import files
from onnxgate.core.errors import UsageError

HOLDS = (
    "import sys, time; from onnxgate.core import files; "
    "print(files.create_process_folder(), flush=True); time.sleep(60)"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(files, "_process_roots", {})
    return tmp_path


def holder(temporary: Path) -> subprocess.Popen[str]:
    """Start another process that has a temporary folder."""
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", HOLDS], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_folder_is_removed(temporary: Path) -> None:
    """The folder is removed with its content; its parent is kept until the process ends."""
    with files.temporary_folder() as folder:
        Path(folder, "file").touch()

    assert not Path(folder).exists()
    assert [path.name.startswith(files.PREFIX) for path in temporary.iterdir()] == [True]


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files that are removed are another thing there")
def test_leftovers_of_a_killed_process_are_removed(temporary: Path) -> None:
    """Folders of a killed process are removed, but not while it is alive, and nothing else is removed."""
    (temporary / "onnxgate-kept").mkdir()
    with holder(temporary) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        files.create_process_folder()
        alive = theirs.exists()
        other.send_signal(signal.SIGKILL)
    files._process_roots.clear()
    files.create_process_folder()

    assert alive
    assert not theirs.parent.exists()
    assert (temporary / "onnxgate-kept").exists()


def _fill(target: Path) -> None:
    with files.replace_atomically(target) as new:
        new.write_text("half")
        raise OSError("full")


def test_a_file_takes_its_place_at_once(tmp_path: Path) -> None:
    """If writing fails, the old file is kept and no temporary file is left."""
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(OSError, match="full"):
        _fill(target)
    kept = target.read_text()
    with files.replace_atomically(target) as new:
        new.write_text("new")

    assert (kept, target.read_text()) == ("old", "new")
    assert list(tmp_path.iterdir()) == [target]


def test_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """A temporary file is removed by process ID in this PID namespace, and by age if it was written in another
    container.
    """
    here, dead = files._pid_space(), 2**22 + 1
    killed, alive = f".file.{here}-{dead}-ff.tmp", f".file.{here}-{os.getpid()}-ff.tmp"
    elsewhere, old = f".file.00c0ffee-{dead}-ff.tmp", f".file.00c0ffee-{dead}-ee.tmp"
    for name in (killed, alive, elsewhere, old, f".other.{here}-{dead}-ff.tmp", ".file.x.tmp"):
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (0, 0))
    with files.replace_atomically(tmp_path / "file") as new:
        new.touch()

    remaining = {path.name for path in tmp_path.iterdir()}
    assert remaining == {alive, elsewhere, f".other.{here}-{dead}-ff.tmp", ".file.x.tmp", "file"}


def test_writers_with_the_same_process_id_do_not_collide(tmp_path: Path) -> None:
    """Processes in two containers that share the folder may have the same ID; each writer completes its own file."""
    target = tmp_path / "file"
    with files.replace_atomically(target) as first:
        first.write_text("first")
        with files.replace_atomically(target) as second:
            second.write_text("second")
        inner = target.read_text()

    assert (inner, target.read_text()) == ("second", "first")
    assert list(tmp_path.iterdir()) == [target]


def test_a_private_temporary_file(tmp_path: Path) -> None:
    """A file that only its owner may read is not readable by others while it is written."""
    with files.replace_atomically(tmp_path / "file", private=True) as new:
        mode = new.stat().st_mode & 0o777

    assert mode == 0o600 or sys.platform == "win32"


def test_the_longest_name(tmp_path: Path) -> None:
    """A file with the longest name that the file system allows can be replaced."""
    target = tmp_path / ("n" * 250)
    with files.replace_atomically(target) as new:
        new.write_text("new")

    assert target.read_text() == "new"


@pytest.mark.parametrize("path", ["lock", "folder/lock"])
@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("inside", ""),
        ("../outside", "outside the repository"),
        (".git/config", "belongs to git"),
        ("chain", "outside the repository"),
    ],
)
def test_links_are_followed_within_the_repository(tmp_path: Path, path: str, target: str, problem: str) -> None:
    """A committed link does not choose which file of the user is written, whether it is the file or its folder."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "chain").symlink_to(tmp_path / "elsewhere")
    link = root / Path(path).parts[0]
    link.symlink_to(root / target)
    real = Path(os.path.realpath(root / path))
    if problem:
        with pytest.raises(UsageError, match=problem) as caught:
            files.follow_links(root / path)
        leads = f"the link `{link.name}` leads to `{os.path.realpath(link)}`"
        assert caught.value.message.startswith(f"`{path}` cannot be written: {leads}, which ")
    else:
        assert real == files.follow_links(root / path)


def test_link_in_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the path as it was given, and the link in it."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "in" / "sub").mkdir(parents=True)
    (tmp_path / "repository" / "in" / "reports").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path / "repository" / "in" / "sub")

    with pytest.raises(UsageError) as caught:
        files.follow_links(Path("../reports/a/b.json"))

    problem = f"the link `../reports` leads to `{tmp_path}`, which is outside the repository"
    assert f"`../reports/a/b.json` cannot be written: {problem}" == caught.value.message


def test_links_without_a_repository_are_followed(tmp_path: Path) -> None:
    """`--output report.json` and `/dev/stdout` may be links of the user."""
    (tmp_path / "report.json").symlink_to(tmp_path / "elsewhere" / "report.json")

    assert tmp_path / "elsewhere" / "report.json" == files.follow_links(tmp_path / "report.json")


@pytest.mark.parametrize(
    ("ctime_ns", "age_s", "expected"),
    [
        (1_000_000_000, 1.9, False),  # such as FAT, or ext3
        (1_000_000_000, 2.1, True),
        (1_980_000_000, 1.9, False),  # exFAT
        (1_000_000_001, 0.05, False),
        (1_000_000_001, 0.2, True),
    ],
)
def test_age_after_which_a_digest_is_cached(ctime_ns: int, age_s: float, expected: bool) -> None:
    """A file must be older than the step in which its file system stores times, or a change may be invisible."""
    status: Any = SimpleNamespace(st_size=2**21, st_mtime_ns=ctime_ns, st_ctime_ns=ctime_ns)

    assert expected == files.is_settled(status, ctime_ns + int(age_s * 10**9))


def test_new_mtime_of_an_old_file() -> None:
    """A program can set the modification time, so that it does not show which times the file system stores."""
    status: Any = SimpleNamespace(st_size=2**21, st_mtime_ns=1_000_000_001, st_ctime_ns=1_000_000_000)

    assert not files.is_settled(status, 2_000_000_000)
