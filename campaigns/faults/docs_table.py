"""The table: each fault, what the user sees, and the exit status, as measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaigns.faults.invariants import Seen, masked, said
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import Fault

LONGEST = 240
NAME = re.compile(r"<!-- ([a-z-]+) -->")
HEAD = """# What goes wrong around it

Disks fill up, jobs are cancelled, indexes do not answer, runtimes lie. Here is each fault that is made for onnxgate,
what is said first, and the exit status. The tables are printed by
`python -m campaigns.faults --write docs/concepts/faults.md`, which really makes every fault; texts are as seen on
Linux, and where several runs of a fault end differently, all statuses are given.

In none of these runs was a model passed that would not have passed without the fault, a lock damaged, a process left
running, or a traceback shown. 130 is "interrupted", 141 a pipe that nobody reads; a process that is killed with SIGKILL
has no status of its own: what counts there is the run after it.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault as it was seen."""

    fault: Fault
    statuses: tuple[int, ...]
    says: str
    wrong: tuple[str, ...]
    runs: int
    skipped: str = ""


def row(fault: Fault, seen: Sequence[Seen], wrong: Sequence[str], ground: Ground, *, skipped: str = "") -> Row:
    """What came of a fault."""
    statuses = tuple(sorted({each.status for each in seen}, key=lambda status: (status == 0, status)))
    telling = next((each for each in seen if each.status == (statuses[0] if statuses else 0)), None)
    words = masked(said(telling), ground.folder, ground.shared) if telling else ""
    return Row(fault, statuses, _short(words), tuple(wrong), len(seen), skipped)


def text(row: Row) -> str:
    """A row on a terminal."""
    state = f"skipped: {row.skipped}" if row.skipped else f"{_statuses(row)} ({row.runs} runs): {row.says}"
    return "\n".join([f"{row.fault.name}: {state}", *(f"    WRONG {each}" for each in row.wrong)])


def markdown(rows: Sequence[Row]) -> str:
    """The page with the tables of all groups."""
    return "\n".join((HEAD, *_lines(rows)))


def renewed(old: str, new: str) -> str:
    """The old page with the rows of the new one."""
    rows = {name: line for line in new.splitlines() for name in NAME.findall(line)}
    lines = (rows.get(next(iter(NAME.findall(line)), ""), line) for line in old.splitlines())
    return "".join(f"{line}\n" for line in lines)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for group in dict.fromkeys(each.fault.group for each in rows):
        yield from (f"## {group[:1].upper()}{group[1:]}", "", "| fault | status | what is said |", "|---|---|---|")
        for each in rows:
            if each.fault.group == group:
                says = f"not made here: {each.skipped}" if each.skipped else each.says
                yield f"| {_cell(each.fault.what)} <!-- {each.fault.name} --> | {_statuses(each)} | {_cell(says)} |"
        yield ""


def _statuses(row: Row) -> str:
    return ", ".join("killed" if each < 0 else str(each) for each in row.statuses)


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
