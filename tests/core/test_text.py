"""Plurals and suggested spellings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.text import find_similar, join_command, pluralize, quote_path, quote_value, suggest_spelling


def test_nouns_follow_their_number() -> None:
    """Only 1 takes the singular; a noun may have an irregular plural."""
    assert [pluralize(number, "model") for number in (0, 1, 2)] == ["0 models", "1 model", "2 models"]
    assert [pluralize(number, "axis", "axes") for number in (1, 2)] == ["1 axis", "2 axes"]


@pytest.mark.parametrize(
    ("word", "candidates", "expected"),
    [
        ("encodr.onnx", ("decoder.onnx", "encoder.onnx"), "encoder.onnx"),
        ("encoder.onx", ("encoder.onnx",), "encoder.onnx"),
        ("Encoder.onnx", ("encoder.onnx",), "encoder.onnx"),
        ("modl/*.onnx", ("models/*.onnx",), "models/*.onnx"),
        ("timr", ("time", "batch"), "time"),
        ("cn", ("cnn", "rnn"), "cnn"),
        ("time_s", ("time-s",), "time-s"),
        ("warn", ("note", "warning", "error"), "warning"),
    ],
)
def test_a_misspelled_name_is_found(word: str, candidates: tuple[str, ...], expected: str) -> None:
    """A missing, added, transposed or replaced character does not matter; neither do case and underscores."""
    assert find_similar(word, candidates) == expected


@pytest.mark.parametrize(
    ("word", "candidates"),
    [
        ("a.onx", ("t.onnx", "b.onnx")),
        ("m2.onnx", ("m1.onnx",)),
        ("resnet50.onnx", ("resnet18.onnx", "resnet101.onnx")),
        ("resnt50.onnx", ("resnet18.onnx",)),
        ("cnn.onnx", ("rnn.onnx",)),
        ("models/a.onnx", ("models/t.onnx",)),
        ("absent.onnx", ("model.onnx", "encoder.onnx")),
        ("enc", ("dec",)),
        ("x", ("y", "xy")),
        ("sizes", ()),
    ],
)
def test_another_name_is_not_suggested(word: str, candidates: tuple[str, ...]) -> None:
    """Files that share only folder and extension, and short names that differ, are not misspellings of each other."""
    assert find_similar(word, candidates) == ""
    assert suggest_spelling(word, candidates) == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are for a POSIX shell")
@pytest.mark.parametrize(
    "name",
    [
        "-x.onnx",
        "--help.onnx",
        "a b.onnx",
        "it's.onnx",
        'q"q.onnx',
        "$(touch z).onnx",
        "`id`.onnx",
        "a\nb.onnx",
        "é'\t\\.onnx",
    ],
)
def test_commands_can_be_pasted(tmp_path: Path, name: str) -> None:
    """A printed command names exactly the file, and nothing in the name is an option or runs."""
    script = 'show() { while [ "$1" = --x ]; do shift 2; done; [ "$1" = -- ] && shift; printf "%s\\0" "$@"; }\n'
    commands = [
        f"show {quote_path(name)}",
        join_command(("show", "--x", "1"), name),
        f"show --x 1 {quote_value(name)}",
    ]
    printed = [escape_unprintable(command) for command in commands]
    results = [
        subprocess.run(
            ["bash", "-c", script + command], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for command in printed
    ]

    assert results == [f"{name}\0"] * 3
    assert list(tmp_path.iterdir()) == []


def test_options_precede_a_path_that_looks_like_an_option() -> None:
    """A shell command has options only before `--`."""
    assert join_command(("onnxgate", "check"), "-x.onnx", options=("-v",)) == "onnxgate check -v -- -x.onnx"
    assert join_command(("onnxgate", "check"), "x.onnx", options=("-v",)) == "onnxgate check x.onnx -v"
    assert join_command(("onnxgate", "fix"), "x.onnx", "-x.onnx") == "onnxgate fix -- x.onnx -x.onnx"


def test_words_with_spaces_are_portable() -> None:
    """Words with spaces are in double quotes, which shells on Windows know too, unless a shell would change them."""
    assert join_command(("show",), "a b.onnx", "$a b.onnx") == "show \"a b.onnx\" '$a b.onnx'"
