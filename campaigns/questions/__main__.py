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

from campaigns.conformance import environments
from campaigns.questions.evaluation import (
    LOADS,
    REFUSED,
    Question,
    Questions,
    describe_loads,
    find_differences,
    load_on_release,
    load_questions,
    predict,
    write_model,
)

HEAD = """# Questions from public issues

People ask in public issues which release of ONNX Runtime supports an operator, a type, an opset or an IR version. The
answers below are about the CPU provider and releases from 1.16.0 to {newest}. Each was compared with real loads of a
small model:

```console
$ python -m campaigns.questions
```

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
        wrong = sum(report(question, paths[question], observed[question]) for question in known.questions)
    loads = sum(map(len, observed.values()))
    print(f"{len(known.questions)} questions, {loads} loads, {wrong} wrong answers")
    return 1 if wrong else 0


def observe(known: Questions, paths: dict[Question, Path], *, all_releases: bool) -> dict[Question, dict[str, str]]:
    """Load the models, and return the outcome on each release, `loads` or `refused`, for each question."""
    outcomes: dict[Question, dict[str, str]] = {question: {} for question in paths}
    for release in known.list_releases():
        chosen = [each for each in paths if all_releases or release in known.select_decisive_releases(each)]
        python = environments.python_of(release, environments.cache())
        texts = load_on_release(python, [paths[question] for question in chosen])
        for question, text in zip(chosen, texts, strict=True):
            outcomes[question][release] = REFUSED if text else LOADS
    return outcomes


def report(question: Question, path: Path, observed: dict[str, str]) -> bool:
    """Print the answers to a question; return whether one of them is wrong."""
    started = time.monotonic()
    predicted = predict([path])[0]
    elapsed_s = time.monotonic() - started
    differing = find_differences(question, {release: predicted[release] for release in observed})
    problems = [f"predicted {predicted[release]} on {release}" for release in differing]
    problems += [f"{observed[release]} on {release}" for release in find_differences(question, observed)]
    print(f"{question.name}: {describe_loads(question)} ({len(observed)} loads, {elapsed_s:.1f} s)", flush=True)
    for problem in problems:
        print(f"    WRONG: {problem}")
    return bool(problems)


def format_page(known: Questions) -> str:
    """Return the page with all questions and answers."""
    rows = [
        f"| {question.question} [{question.name}]({question.thread}) | {describe_loads(question)}"
        f"{f'. {question.note}' if question.note else ''} |\n"
        for question in known.questions
    ]
    return HEAD.format(newest=known.newest) + "".join(rows)


if __name__ == "__main__":
    sys.exit(main())
