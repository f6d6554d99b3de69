"""Columns of a table of models by runtime. Consecutive releases whose cells are equal share a column."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec


class RuntimeColumn(msgspec.Struct, frozen=True):
    """A column of a table of models by runtime, for one or more consecutive releases of one engine."""

    engine: str
    ends: tuple[str, ...]  # ("1.18.1",), ("1.18",) or ("1.18", "1.21")
    cells: tuple[str, ...]  # one for each model

    @property
    def label(self) -> str:
        """Head of the column: a release or a range of releases, such as `1.18.1` or `1.18–1.21`."""
        return "–".join(self.ends)

    @property
    def major(self) -> str:
        """Major version of the releases with a dot, such as `1.`; "" if the range covers several major versions."""
        majors = {end.partition(".")[0] for end in self.ends if "." in end}
        return f"{majors.pop()}." if len(majors) == 1 else ""

    @property
    def short_label(self) -> str:
        """Head of the column without the major version, such as `18–21`."""
        return "–".join(end.removeprefix(self.major) for end in self.ends)


def join_columns(runtimes: Sequence[str], cells: Mapping[str, Sequence[str]]) -> list[RuntimeColumn]:
    """Return the columns of a table of models by runtime.

    `runtimes` are sorted names such as `onnxruntime 1.18.1`; `cells` maps each of them to one cell per model. A range
    contains only consecutive minor releases. An end of a range is shown as a minor release, such as 1.18, if the range
    contains all patch releases of this minor release; otherwise, it is shown as a patch release.
    """
    patches: dict[str, list[str]] = {}
    for runtime in runtimes:
        patches.setdefault(_minor_name(runtime), []).append(runtime)
    runs: list[list[str]] = []
    for runtime in runtimes:
        last = runs[-1][-1] if runs else ""
        if last and _is_adjacent(last, runtime) and tuple(cells[last]) == tuple(cells[runtime]):
            runs[-1].append(runtime)
        else:
            runs.append([runtime])
    columns = []
    for run in runs:
        ends = [
            _minor_name(end) if len(run) > 1 and set(patches[_minor_name(end)]) <= set(run) else end
            for end in (run[0], run[-1])
        ]
        engine = run[0].rpartition(" ")[0]
        labels = tuple(dict.fromkeys(end.rpartition(" ")[2] for end in ends))
        columns.append(RuntimeColumn(engine, labels, tuple(cells[run[0]])))
    return columns


def _minor_name(runtime: str) -> str:
    engine, _, release = runtime.rpartition(" ")
    return f"{engine} {'.'.join(release.split('.')[:2])}"


def _is_adjacent(older: str, newer: str) -> bool:
    """Return whether two releases belong to the same engine and to the same or consecutive minor releases."""
    (engine, _, first), (other_engine, _, second) = older.rpartition(" "), newer.rpartition(" ")
    numbers = [release.split(".")[:2] for release in (first, second)]
    if engine != other_engine or not all(len(pair) == 2 and pair[1].isdecimal() for pair in numbers):
        return False
    (major, minor), (other_major, other_minor) = numbers
    return major == other_major and int(other_minor) - int(minor) in (0, 1)


def list_words(columns: Sequence[RuntimeColumn]) -> set[str]:
    """Return all words that occur in the cells of a table."""
    return set(itertools.chain.from_iterable(column.cells for column in columns))
