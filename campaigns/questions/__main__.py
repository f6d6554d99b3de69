"""Compare the answers of onnxgate and of real loads to questions from public threads.

    python -m campaigns.questions [--all-releases] [--write docs/contributing/questions.md]

Each model is loaded on the releases that decide the answer: those that the thread names, the oldest, the newest, and
those next to a change. The exit status is 1 if an answer is wrong. `--write` writes the page with all questions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from campaigns.questions.evaluation import (
    LOADS,
    REFUSED,
    Question,
    Questions,
    ask,
    describe_loads,
    find_differences,
    is_answered,
    load_on_release,
    load_questions,
    predict,
    write_model,
)

HEAD = """# Questions from public issues

People ask in public issues which release of a runtime supports an operator, a type, an opset or an IR version. Each
answer below was compared with real loads of a small model:

```console
$ python -m campaigns.questions
```

The first line that `onnxgate support` prints is compared, too. Questions without this command depend on attribute
values, shapes, neighboring nodes or files; `onnxgate matrix` answers them for a model.
"""
SECTION = """
## {engine} {oldest}–{newest}, CPU

| question | releases that load the model |
|---|---|
"""


def main() -> int:
    """Print one row per question; return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.questions", description=__doc__.partition("\n")[0])
    parser.add_argument("--all-releases", action="store_true", help="load the models on all releases")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="write the page with all questions")
    arguments = parser.parse_args()
    known = load_questions()
    if arguments.write:
        arguments.write.write_text(format_page(known), encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="onnxgate-questions-") as folder:
        paths = {
            question: write_model(question, Path(folder, str(index))) for index, question in enumerate(known.questions)
        }
        observed = observe(known, paths, all_releases=arguments.all_releases)
        wrong = sum(report(known, question, paths[question], observed[question]) for question in known.questions)
    loads = sum(map(len, observed.values()))
    print(f"{len(known.questions)} questions, {loads} loads, {wrong} wrong answers")
    return 1 if wrong else 0


def observe(known: Questions, paths: dict[Question, Path], *, all_releases: bool) -> dict[Question, dict[str, str]]:
    """Load the models, and return the outcome on each release, `loads` or `refused`, for each question."""
    outcomes: dict[Question, dict[str, str]] = {question: {} for question in paths}
    decisive = {question: known.select_decisive_releases(question) for question in paths}
    for engine in known.newest:
        asked = [question for question in paths if question.engine == engine]
        for release in known.list_releases(engine):
            chosen = [question for question in asked if all_releases or release in decisive[question]]
            if chosen:
                texts = load_on_release(engine, release, [paths[question] for question in chosen])
                for question, text in zip(chosen, texts, strict=True):
                    outcomes[question][release] = REFUSED if text else LOADS
    return outcomes


def report(known: Questions, question: Question, path: Path, observed: dict[str, str]) -> bool:
    """Print the answers to a question; return whether one of them is wrong."""
    print(f"{question.name}: {question.question}")
    differing = find_differences(question, observed)
    problems = [f"{observed[release]} on {release}" for release in differing]
    started = time.monotonic()
    predicted = predict(question.engine, [path])[0]
    print(f"    loads: {describe_loads(question)} ({len(observed)} loads; predicted in {elapsed(started)})")
    differing = find_differences(question, {release: predicted[release] for release in observed})
    problems += [f"predicted {predicted[release]} on {release}" for release in differing]
    if question.support:
        started = time.monotonic()
        line = ask(question)
        print(f"    {question.command} ({elapsed(started)})\n    {line}", flush=True)
        if not is_answered(question, line, known.list_releases(question.engine)):
            problems.append("first line")
    for problem in problems:
        print(f"    WRONG: {problem}")
    return bool(problems)


def elapsed(started: float) -> str:
    """Return the time since the start."""
    return f"{time.monotonic() - started:.1f} s"


def format_page(known: Questions) -> str:
    """Return the page with all questions and answers."""
    page = HEAD
    for engine, newest in known.newest.items():
        page += SECTION.format(engine=engine, oldest=known.list_releases(engine)[0], newest=newest)
        page += "".join(format_row(question) for question in known.questions if question.engine == engine)
    return page


def format_row(question: Question) -> str:
    """Return the table row of a question."""
    asked = f"{question.question} [{question.name}]({question.thread})"
    command = f"<br>`{question.command}`" if question.support else ""
    note = f". {question.note}" if question.note else ""
    return f"| {asked}{command} | {describe_loads(question)}{note} |\n"


if __name__ == "__main__":
    sys.exit(main())
