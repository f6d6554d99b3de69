"""Write the page in docs/contributing: each fault with its observed exit statuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaigns.faults.invariants import FaultOutcome, main_message, masked
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import Fault

LONGEST = 240
NAME = re.compile(r"<!-- ([a-z-]+) -->")
HEAD = """# Behavior under faults

This command injects each fault below while onnxgate runs, and writes this page:

```console
$ python -m campaigns.faults --all --write docs/contributing/faults.md
```

The command checks that a fault never makes a failing model pass, that the lock stays valid, that no process is left
running, and that no traceback is printed.

The exit statuses are those on Linux. If runs with the same fault have different exit statuses, all of them are listed.
130 means that the run was interrupted, 141 that a pipe was closed, and "killed" that the run was terminated by SIGKILL.
After SIGKILL, the next run is also checked.
"""
TAIL = """## Unexpected error about one model

An exception in onnxgate about one model is the result of this model. `core/bug_reports.py` contains the boundary:
`contain_errors` makes the affected checks undecided, and `explain_error` returns the reason with the path of a bug
report. Errors in the arguments, the config and the lock, and interruptions, still end the command. A full disk or
another fault of the machine is reported as such, without a bug report.

| step | result for the model | result for the others |
|---|---|---|
| static stages, in a child process | undecided | judged |
| rules, and the comparison with the lock or with a revision | undecided | judged |
| input cases, runs, parity, export and budgets | undecided in these stages | judged |
| a file changes during the check | undecided, without a bug report | judged |
| prediction and load in `matrix` | unknown | predicted and loaded |
| `lock` | listed with the reason; the lock is not written | also listed if they cannot be locked |
| measurement in `lock --measure` | not measured | measured, and the lock is written |
| export, comparison and writing in `export` | not compared, or not written | written |
| repair, verification and writing in `fix` | not verified, or not written | repaired |
| comparison in `lock --upgrade --preview` | undecided | compared |
| a model, script or requirements file in `init` | left out | used |

The exit status is 3, or 1 if another model fails; `init` continues. If onnx's C++ code crashes, hangs or needs too much
memory, this is the result of one call in a child process (`model/onnx_functions.py`), and not a bug report. If this
happens while a model is read, the model is read again with each of these calls in a separate process, and only the
failed check is undecided. Runs of the model on all required runtimes decide it.

These errors are injected in `tests/gate/test_contained_errors.py`, `tests/gate/execution/test_error_boundary.py` and
`tests/commands/test_contained_errors.py`, and changes of files in `tests/gate/test_changed_files.py` and
`tests/e2e/test_swapped_data.py`.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Results of all runs with one fault."""

    fault: Fault
    statuses: tuple[int, ...]
    says: str
    wrong: tuple[str, ...]
    runs: int
    skipped: str = ""


def row(fault: Fault, seen: Sequence[FaultOutcome], wrong: Sequence[str], ground: Ground, *, skipped: str = "") -> Row:
    """Return the table row for a fault."""
    statuses = tuple(sorted({each.status for each in seen}, key=lambda status: (status == 0, status)))
    telling = next((each for each in seen if each.status == (statuses[0] if statuses else 0)), None)
    words = masked(main_message(telling), ground.folder, ground.shared) if telling else ""
    return Row(fault, statuses, _short(words), tuple(wrong), len(seen), skipped)


def text(row: Row) -> str:
    """Return a row as terminal text."""
    state = f"skipped: {row.skipped}" if row.skipped else f"{_statuses(row)} ({row.runs} runs): {row.says}"
    return "\n".join([f"{row.fault.name}: {state}", *(f"    WRONG {problem}" for problem in row.wrong)])


def markdown(rows: Sequence[Row]) -> str:
    """Return the page, with a table for each group of faults."""
    return "\n".join((HEAD, *_lines(rows), TAIL))


def renewed(old: str, new: str) -> str:
    """Return the old page, with rows replaced by the rows of the new page that have the same fault."""
    rows = {name: line for line in new.splitlines() for name in NAME.findall(line)}
    lines = (rows.get(next(iter(NAME.findall(line)), ""), line) for line in old.splitlines())
    return "".join(f"{line}\n" for line in lines)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for group in dict.fromkeys(row.fault.group for row in rows):
        yield from (f"## {group[:1].upper()}{group[1:]}", "", "| fault | exit status |", "|---|---|")
        for row in rows:
            if row.fault.group == group:
                status = "not run" if row.skipped else _statuses(row)
                yield f"| {_cell(row.fault.what)} <!-- {row.fault.name} --> | {status} |"
        yield ""


def _statuses(row: Row) -> str:
    words = ["killed" if status < 0 else str(status) for status in row.statuses]
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
