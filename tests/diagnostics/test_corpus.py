"""Every text in the corpus matches its entry, and ordinary log lines match none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from onnxgate import rules
from onnxgate.diagnostics.catalogue import Entry, longest_literal
from onnxgate.diagnostics.classification import classify, list_entries, list_patterns, match_patterns, normalize_text
from onnxgate.diagnostics.log_explanation import explain_log
from tools.harvest_texts import corpus

FILES = sorted(corpus.FOLDER.glob("*/*.json"))
ORDINARY = Path(__file__).with_name("ordinary.log")
HOSTS = re.compile(r"/tmp/|/home/|/opt/|/root/|/work/")


def load_cases(path: Path) -> dict[str, dict[str, str]]:
    """Return case -> `entry` and `text`."""
    return json.loads(path.read_bytes())["texts"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_text_matches_its_entry(path: Path) -> None:
    """The classification of a text does not need the rest of its log."""
    for case, each in load_cases(path).items():
        known = classify(each["text"])

        assert known is not None, f"{case} is unknown: {each['text']}"
        assert (case, known.entry.name) == (case, each["entry"])
        assert known.means
        assert known.fix


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_text_is_found_in_a_log(path: Path) -> None:
    """Surrounding lines, CI prefixes and colors do not affect the classification."""
    import io

    for case, each in load_cases(path).items():
        log = "\n".join(f"2026-01-01T00:00:00.1234567Z \x1b[31m{line}\x1b[0m" for line in each["text"].split("\n"))
        explanations = explain_log(io.BytesIO(f"collected 3 items\r\n{log}\r\nbye\r\n".encode()), "0")

        assert each["entry"] in {error.name for error in explanations.errors}, (
            case,
            [e.name for e in explanations.errors],
        )


def test_every_entry_has_a_text_that_matches() -> None:
    """Each pattern has a known text; an entry without a text in the corpus has an example."""
    seen = {case["entry"] for path in FILES for case in load_cases(path).values()}
    examples = {entry.name: entry.example for entry in list_entries() if entry.name not in seen}
    matched = {name: known and known.entry.name for name, example in examples.items() for known in [classify(example)]}

    assert matched == {name: name for name in examples}
    assert [entry.name for entry in list_entries() if entry.example and not entry.source] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Since ORT 1.9, you are required to explicitly set the providers parameter", "provider-not-chosen"),
        ("No ONNX handler registered for JAX primitive: 'while'", "jax2onnx-unsupported"),
    ],
)
def test_a_text_of_other_releases_matches(text: str, expected: str) -> None:
    """These texts were once not recognized: one because of its case, one because only an older release prints it."""
    known = classify(text)

    assert known is not None
    assert known.entry.name == expected


def test_the_corpus_is_small_and_contains_no_local_paths() -> None:
    """The corpus is small, because it stays in the repository's history, and contains no local paths."""
    assert sum(path.stat().st_size for path in FILES) < 300_000
    assert [path.name for path in FILES if HOSTS.search(path.read_text(encoding="utf-8"))] == []


def test_ordinary_lines_match_no_entry() -> None:
    """Output of other programs counts neither as a known nor as an unknown error."""
    with ORDINARY.open("rb") as stream:
        explanations = explain_log(stream, "0")

    assert (explanations.errors, explanations.first_unknown) == ((), ())
    assert [line for line in ORDINARY.read_text(encoding="utf-8").splitlines() if classify(line)] == []


def test_status_and_line_number_do_not_matter() -> None:
    """Status codes and source positions, which change between releases, do not affect the classification."""
    message = "Unsupported model IR version: 13, max supported IR version: 9"
    text = f"[ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:model.cc:1 f() {message}"
    moved = text.replace(" 1 : FAIL", " 6 : RUNTIME_EXCEPTION").replace("model.cc:1 ", "graph_loader.cc:999 ")
    names = {known.entry.name for each in (text, moved) if (known := classify(each))}

    assert names == {"ir-version-too-new"}


def test_names_are_unique_and_rules_exist() -> None:
    """Entry names, which users search for, are unique, and their rules exist."""
    names = [entry.name for entry in list_entries()]

    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []
    assert {rule for entry in list_entries() for rule in entry.rules} - set(rules.by_id) == set()


@pytest.mark.parametrize(("entry", "pattern"), [(entry.name, pattern) for entry, pattern, _ in list_patterns()])
def test_every_pattern_has_a_long_literal(entry: str, pattern: str) -> None:
    """The literal that preselects lines is long and occurs in every alternative of the pattern."""
    depth, bare = 0, re.sub(r"\\.|\[[^\]]*\]", "", pattern)
    for character in bare:
        depth += (character == "(") - (character == ")")
        assert depth or character != "|", f"{entry}: make each alternative a separate pattern"

    assert len(longest_literal(pattern)) >= 8


def test_a_wrapped_text_matches() -> None:
    """Patterns match texts that a terminal or pager has wrapped at spaces."""
    for path in FILES:
        for case, each in load_cases(path).items():
            text = normalize_text(each["text"])
            known = classify(text)
            assert known is not None
            match = text[known.start : known.end]
            blank = match.find(" ", len(match) // 3)
            if blank > 0 and known.pattern.count(" ") > 3 and ".{" not in known.pattern and "[^" not in known.pattern:
                broken = text[: known.start] + match[:blank] + "\n" + match[blank + 1 :] + text[known.end :]
                again = classify(broken)
                assert (case, again and again.entry.name) == (case, known.entry.name)


def test_specific_entries_match_first() -> None:
    """General entries are matched after specific ones."""
    text = "Exception during initialization: x Failed to construct locale with name:xx_YY:bad"
    every = [pattern.entry.name for pattern in match_patterns(text, range(len(list_patterns())), len(text))]

    assert every == ["locale-missing", "initialization-failed"]


def test_brackets_inside_a_class_are_literal() -> None:
    """Brackets inside a character class are literal, so that the literal that preselects lines is correct."""
    assert longest_literal(r"Node \((?P<node>[^)\n]{0,300})\): unknown attribute") == "): unknown attribute"


def test_a_line_that_introduces_a_known_error_is_not_unknown() -> None:
    """A source position, which OpenVINO prints before a known error, is an unknown line only without that error."""
    import io

    place = "RuntimeError: Exception from src/inference/src/cpp/core.cpp:97:\n"
    known = explain_log(
        io.BytesIO(f"{place}OpenVINO does not support the following ONNX operations: Det\n".encode()), "0"
    )
    other = explain_log(io.BytesIO(f"{place}something new\n".encode()), "0")

    assert ([error.name for error in known.errors], known.unknown) == (["openvino-operator-unknown"], 0)
    assert (other.errors, other.unknown) == ((), 1)


def test_fix_of_an_operator_version_without_kernel() -> None:
    """The suggested fix is another version of the operator, not a cast."""
    new = classify("Could not find an implementation for MaxRoiPool(22) node with name 'p'")
    old = classify("Could not find an implementation for AveragePool(1) node with name 'p'")

    assert new is not None
    assert old is not None
    assert "export at opset 21 or older, which uses version 1" in new.fix
    assert "export at opset 7 or newer, or try to convert the model" in old.fix


def test_fix_names_the_releases_that_the_index_offers() -> None:
    """Another Python version is not suggested if the index has no release for the platform."""
    message = "Could not find a version that satisfies the requirement torch==2.0.1 (from versions: {})"
    none, some = classify(message.format("none")), classify(message.format("2.2.0, 2.13.0"))
    assert none is not None
    assert some is not None
    assert "the index has no release for this Python version and platform" in none.fix
    assert "(2.2.0–2.13.0)" in some.fix


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        (
            "Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(float))",
            "means",
            "an input has type tensor(int64); the model requires tensor(float)",
        ),
        (
            "Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(double))",
            "fix",
            "convert the input with `array.astype(numpy.float64)`",
        ),
        ("Node (n) has input size 1 not in range [min=2, max=2].", "means", "a node has 1 input; its operator takes 2"),
        (
            "Node (n) has output size 3 not in range [min=1, max=2147483647].",
            "means",
            "a node has 3 outputs; its operator takes at least 1",
        ),
        (
            "[TypeInferenceError] Inferred elem type differs from existing elem type: (1) vs (7)",
            "means",
            "an output is declared as int64, but the operator returns float32",
        ),
        (
            "Failed to construct locale with name:de_DE.UTF-8:locale::facet",
            "fix",
            "on Debian or Ubuntu, run `apt-get install locales && localedef -i de_DE -f UTF-8 de_DE.UTF-8`",
        ),
        (
            "Opset 99 is under development. Current official support for domain ai.onnx is till opset 26.",
            "fix",
            "export at opset 26 of `ai.onnx`; no release up to onnxruntime ",
        ),
    ],
)
def test_rendered_fields(text: str, field: str, expected: str) -> None:
    """Types, numbers and commands in an explanation are computed from the captured names."""
    known = classify(text)

    assert known is not None
    assert getattr(known, field).startswith(expected)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("cannot get file size: No such file or directory [{}]", "file"),
        ("Could not find an implementation for the node {}:Equal(11)", "node"),
        ("This is an invalid model. Error: two nodes with same node name ({}).", "node"),
        (
            "[ShapeInferenceError] (op_type:MatMul, node name: {}): [ShapeInferenceError] Incompatible dimensions",
            "node",
        ),
        ("Type Error: Type parameter (T) of Optype (Add) bound to different types (tensor(int8) in node ({}).", "node"),
        ("Node ({}): unknown attribute 'score'", "node"),
    ],
)
def test_brackets_in_names_are_kept(text: str, group: str) -> None:
    """A name with brackets is neither cut off nor lost."""
    for name in ("layer[0]", "layer(1)", "a[0](1)[2]"):
        known = classify(text.format(name))

        assert known is not None
        assert known.captured.get(group) == name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Could not find an implementation for TreeEnsemble(5) node with name 'te'", "onnxruntime before 1.21.0"),
        ("Could not find an implementation for ai.onnx.ml.TreeEnsemble(5) node with name ''", "before 1.21.0"),
        ("Failed to find kernel for com.microsoft.MatMulNBits(1) (node:'' ep:'CPU')", "onnxruntime before 1.16.2"),
        ("Could not find an implementation for Nope(5) node with name ''", "all onnxruntime releases up to"),
    ],
)
def test_kernels_are_found_in_all_domains(text: str, expected: str) -> None:
    """A text that omits the domain of an operator does not make it an operator that no release has."""
    known = classify(text)

    assert known is not None
    assert expected in known.affected


@pytest.mark.parametrize("entry", list_entries(), ids=lambda entry: entry.name)
def test_findings_do_not_refer_to_checks_of_the_onnx_package(entry: Entry) -> None:
    """A release of onnx may accept what a runtime refuses, so a check by it is not a way to see the problem."""
    fixes = [text for text in (entry.anywhere, entry.fix) if isinstance(text, str)] if entry.family else []

    assert not any(name in text for text in fixes for name in ("onnx.checker", "onnx.shape_inference"))


def test_operators_without_a_domain_are_found_in_all_domains() -> None:
    """The fix names the domain of the operator, and the first release that has it."""
    unregistered = classify('("", TreeEnsemble, "ai.onnx.ml", 5) : Error TreeEnsemble is not a registered function/op')
    unknown = classify("No Op registered for TreeEnsemble with domain_version of 3")

    for known in (unregistered, unknown):
        assert known is not None
        assert "`TreeEnsemble` is in domain `ai.onnx.ml` since opset 5 (since onnxruntime 1.18.0)" in known.fix
