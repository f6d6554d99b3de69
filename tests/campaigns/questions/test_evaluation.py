"""Answers to questions from public threads are right; the quick tier checks them without real loads."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from campaigns.questions.__main__ import format_page, observe
from campaigns.questions.evaluation import (
    Question,
    Questions,
    find_differences,
    is_answered,
    load_questions,
    predict,
    write_model,
)
from onnxgate.cli.support import command

PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "questions.md"
RELU = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'


def written(known: Questions, folder: Path) -> dict[Question, Path]:
    """Write the model of each question."""
    return {question: write_model(question, folder / str(index)) for index, question in enumerate(known.questions)}


@pytest.mark.quick
def test_there_are_fifty_questions_from_different_threads() -> None:
    """Each question comes from a thread of its own."""
    threads = [question.thread for question in load_questions().questions]

    assert len(threads) == len(set(threads)) >= 50


@pytest.mark.quick
def test_predictions_answer_the_questions(tmp_path: Path) -> None:
    """`onnxgate matrix` predicts the recorded answer to each question, on all releases that it is about."""
    known = load_questions()
    paths = written(known, tmp_path)
    wrong = {}
    for engine in known.newest:
        asked = [question for question in paths if question.engine == engine]
        predicted = predict(engine, [paths[question] for question in asked])
        for question, verdicts in zip(asked, predicted, strict=True):
            about = {release: verdicts[release] for release in known.list_releases(engine)}
            wrong[question.name] = find_differences(question, about)

    assert not any(wrong.values()), wrong


@pytest.mark.quick
@pytest.mark.parametrize(
    "question", [each for each in load_questions().questions if each.support], ids=lambda each: each.name
)
def test_the_first_line_of_support_answers_the_question(question: Question) -> None:
    """The first line that `onnxgate support` prints agrees with the real loads."""
    result = CliRunner().invoke(command, shlex.split(question.support))
    first_line = result.output.partition("\n")[0]

    assert result.exit_code == 0
    assert is_answered(question, first_line, load_questions().list_releases(question.engine)), first_line


@pytest.mark.quick
@pytest.mark.parametrize(
    ("line", "loads", "expected"),
    [
        ("`A` is supported by all 34 known releases of onnxruntime (1.16.0–1.32.0), by a kernel", ">=1.16.0", True),
        ("`A` is supported since onnxruntime 1.18.0: by its function body on 1.18.0", ">=1.18.0", True),
        ("`A` is supported since onnxruntime 1.18.1, by a kernel", ">=1.18.0", False),
        ("`A` is supported since onnxruntime-web 1.18.0, by a kernel", ">=1.18.0", True),
        ("`A` is not supported by any of the 34 known releases of onnxruntime", "", True),
        ("`A` is not supported by any of the 34 known releases of onnxruntime", ">=1.32.0", False),
        ("`A` is supported since onnxruntime 1.33.0, by a kernel", "", True),
        ("error: unknown operator `A`", "", False),
    ],
)
def test_first_lines(line: str, loads: str, expected: bool) -> None:
    """A first line answers a question if it names the releases that load the model."""
    question = Question(thread="", asked="", question="", model="", support="A", loads=loads)

    assert is_answered(question, line, ["1.16.0", "1.18.0", "1.18.1", "1.32.0"]) == expected


@pytest.mark.quick
def test_the_page_shows_the_answers() -> None:
    """The page in the documentation contains all questions."""
    assert format_page(load_questions()) == PAGE.read_text(encoding="utf-8")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ("", ["1.16.0", "1.17.1", "1.32.0"]),
        (">=1.16.0", ["1.16.0", "1.17.1", "1.32.0"]),
        (">=1.18.0", ["1.16.0", "1.17.1", "1.17.3", "1.18.0", "1.32.0"]),
        ("!=1.24.1", ["1.16.0", "1.17.1", "1.23.2", "1.24.1", "1.24.2", "1.32.0"]),
    ],
)
def test_decisive_releases(loads: str, expected: list[str]) -> None:
    """Models are loaded on the first and last release, on those of the thread, and next to each change."""
    question = Question(thread="", asked="", question="", model="", releases=("1.17.1",), loads=loads)

    assert expected == Questions({"onnxruntime": "1.32.0"}, (question,)).select_decisive_releases(question)


@pytest.mark.quick
def test_a_wrong_answer_is_found() -> None:
    """A release whose outcome differs from the recorded answer is reported."""
    question = Question(thread="", asked="", question="", model=RELU, loads=">=1.18.0")

    assert find_differences(question, {"1.17.3": "loads", "1.18.0": "unknown", "1.18.1": "loads"}) == [
        "1.17.3",
        "1.18.0",
    ]


@pytest.mark.index
def test_real_loads_answer_the_questions(tmp_path: Path) -> None:
    """Each model loads on exactly the recorded releases, of those that decide the answer."""
    known = load_questions()
    observed = observe(known, written(known, tmp_path), all_releases=False)
    wrong = {question.name: find_differences(question, outcomes) for question, outcomes in observed.items()}

    assert not any(wrong.values()), wrong
