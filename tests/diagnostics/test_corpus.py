"""Every text that was really provoked is taken for what it is, and ordinary lines for nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxgate import rules
from onnxgate.diagnostics.catalogue import longest_literal
from onnxgate.diagnostics.classification import classify, list_entries, list_patterns, match_patterns, normalize_text
from onnxgate.diagnostics.log_explanation import explain_log
from tools.harvest_texts import corpus

FILES = sorted(corpus.FOLDER.glob("*/*.json"))
ORDINARY = Path(__file__).with_name("ordinary.log")
HOSTS = re.compile(r"/tmp/|/home/|/opt/|/root/|/work/")


def texts(path: Path) -> dict[str, dict[str, str]]:
    """Case -> entry and text."""
    return json.loads(path.read_bytes())["texts"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_text_is_taken_for_what_it_is(path: Path) -> None:
    """By what it says alone; and where it is part of a log, with prefixes, the same."""
    for case, each in texts(path).items():
        known = classify(each["text"])

        assert known is not None, f"{case} is unknown: {each['text']}"
        assert (case, known.entry.name) == (case, each["entry"])
        assert known.means
        assert known.fix


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_text_is_found_in_a_log(path: Path) -> None:
    """Whatever is printed around it, and however a service marks its lines."""
    import io

    for case, each in texts(path).items():
        log = "\n".join(f"2026-01-01T00:00:00.1234567Z \x1b[31m{line}\x1b[0m" for line in each["text"].split("\n"))
        found = explain_log(io.BytesIO(f"collected 3 items\r\n{log}\r\nbye\r\n".encode()), "0")

        assert each["entry"] in {error.name for error in found.errors}, (case, [e.name for e in found.errors])


def test_every_entry_has_a_text_or_a_source() -> None:
    """A pattern that nobody saw match would be a guess."""
    seen = {each["entry"] for path in FILES for each in texts(path).values()}

    assert [entry.name for entry in list_entries() if entry.name not in seen and not entry.source] == []


def test_the_corpus_is_small_and_of_no_machine() -> None:
    """It is in the repository for good."""
    assert sum(path.stat().st_size for path in FILES) < 300_000
    assert [path.name for path in FILES if HOSTS.search(path.read_text(encoding="utf-8"))] == []


def test_ordinary_lines_are_nothing() -> None:
    """What other programs print is neither known nor suspect."""
    with ORDINARY.open("rb") as stream:
        found = explain_log(stream, "0")

    assert (found.errors, found.first_unknown) == ((), ())
    assert [line for line in ORDINARY.read_text(encoding="utf-8").splitlines() if classify(line)] == []


def test_the_text_decides_and_not_class_or_line_number() -> None:
    """Both move with releases."""
    said = "Unsupported model IR version: 13, max supported IR version: 9"
    text = f"[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:model.cc:1 f() {said}"
    moved = text.replace(" 1 : FAIL", " 6 : RUNTIME_EXCEPTION").replace("model.cc:1 ", "graph_loader.cc:999 ")
    names = {known.entry.name for each in (text, moved) if (known := classify(each))}

    assert names == {"ir-version-too-new"}


def test_names_are_unique_and_rules_exist() -> None:
    """A name is what people search for."""
    names = [entry.name for entry in list_entries()]

    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []
    assert {rule for entry in list_entries() for rule in entry.rules} - set(rules.by_id) == set()


@pytest.mark.parametrize(("entry", "pattern"), [(entry.name, pattern) for entry, pattern, _ in list_patterns()])
def test_a_pattern_is_found_by_a_piece_of_itself(entry: str, pattern: str) -> None:
    """The piece is long enough to tell lines apart, and no alternative is without it."""
    depth, bare = 0, re.sub(r"\\.|\[[^\]]*\]", "", pattern)
    for character in bare:
        depth += (character == "(") - (character == ")")
        assert depth or character != "|", f"{entry}: alternatives are patterns of their own"

    assert len(longest_literal(pattern)) >= 8


def test_a_text_matches_where_its_lines_are_wrapped() -> None:
    """As terminals and pagers break them, at blanks."""
    for path in FILES:
        for case, each in texts(path).items():
            said = normalize_text(each["text"])
            known = classify(said)
            assert known is not None
            match = said[known.start : known.end]
            blank = match.find(" ", len(match) // 3)
            if blank > 0 and known.pattern.count(" ") > 3 and ".{" not in known.pattern and "[^" not in known.pattern:
                broken = said[: known.start] + match[:blank] + "\n" + match[blank + 1 :] + said[known.end :]
                again = classify(broken)
                assert (case, again and again.entry.name) == (case, known.entry.name)


def test_recognised_goes_by_order() -> None:
    """What says more comes first."""
    text = "Exception during initialization: x Failed to construct locale with name:xx_YY:bad"
    every = [each.entry.name for each in match_patterns(text, range(len(list_patterns())), len(text))]

    assert every == ["locale-missing", "initialization-failed"]


def test_brackets_in_a_class_open_nothing() -> None:
    """Else the piece that lines are chosen by is one that no text holds."""
    assert longest_literal(r"Node \((?P<node>[^)\n]{0,300})\): unknown attribute") == "): unknown attribute"


def test_a_line_that_announces_a_known_error_is_none_by_itself() -> None:
    """Engines put the place in their code in front; alone, it is shown as unknown."""
    import io

    place = "RuntimeError: Exception from src/inference/src/cpp/core.cpp:97:\n"
    known = explain_log(
        io.BytesIO(f"{place}OpenVINO does not support the following ONNX operations: Det\n".encode()), "0"
    )
    other = explain_log(io.BytesIO(f"{place}something new\n".encode()), "0")

    assert ([error.name for error in known.errors], known.unknown) == (["openvino-operator-unknown"], 0)
    assert (other.errors, other.unknown) == ((), 1)


def test_a_revised_operator_without_kernel_is_not_a_matter_of_types() -> None:
    """The way out is another version of the operator, and which one is known."""
    new = classify("Could not find an implementation for MaxRoiPool(22) node with name 'p'")
    old = classify("Could not find an implementation for AveragePool(1) node with name 'p'")

    assert new is not None
    assert old is not None
    assert "export at opset 21 or older: there are kernels of version 1" in new.fix
    assert "convert the model to opset 7 or newer" in old.fix


def test_what_an_index_offers_is_said() -> None:
    """Another Python is no help where there is nothing for the platform, nor where two requirements exclude."""
    asked = "Could not find a version that satisfies the requirement torch==2.0.1 (from versions: {})"
    none, some = classify(asked.format("none")), classify(asked.format("2.2.0, 2.13.0"))
    assert none is not None
    assert some is not None
    assert "no release of it at all" in none.fix
    assert "there is 2.2.0 to 2.13.0" in some.fix
