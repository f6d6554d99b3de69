"""Wrong clocks, and files with modification times in the future."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault

YEAR_S = 31_556_952
# Replaces the clock of the command's own process only; its child processes use the real clock. `sys.argv` is not set
# yet at this point.
DOUBLE = """
import datetime, os, sys, time
if any(os.path.basename(each) == "onnxgate" for each in getattr(sys, "orig_argv", ())):
    own = time.time
    time.time = lambda: own() + SHIFT
    time.time_ns = lambda: int(time.time() * 1e9)
    class Moved(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)
    datetime.datetime = Moved
"""


def moved(ground: Ground, years: int) -> dict[str, Path]:
    """Return environment variables with which the command sees a different year."""
    folder = ground.folder / f"clock {years}"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(DOUBLE.replace("SHIFT", str(years * YEAR_S)))
    return {"PYTHONPATH": folder}


def with_ignore(ground: Ground) -> None:
    """Add an ignore entry for a finding in this project; it expires in two years."""
    config = ground.project / "onnxgate.toml"
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * YEAR_S))
    entry = f'\n[[ignore]]\nrule = "size-grew"\nmodel = "models/small.onnx"\nreason = "accepted"\nuntil = {day}\n'
    config.write_text(config.read_text() + entry)


@fault("clock", "the clock is moved by 10 years between runs")
def clock_changed(ground: Ground) -> Iterator[FaultOutcome]:
    """Verdicts do not depend on the clock, and cached results stay valid."""
    for years in (-10, 10, 0):
        yield ground.check(expected=(0,), variables=moved(ground, years), about=f"{years:+d} years")


@fault("clock", "the clock is set to before and after an ignore entry expires", quick=True, runs=False)
def clock_ignore_expiry(ground: Ground) -> Iterator[FaultOutcome]:
    """In ten years the ignore entry has expired; ten years ago it was valid."""
    with_ignore(ground)
    for years in (-10, 10):
        seen = ground.check(
            "--static", expected=(0, 1), true=False, variables=moved(ground, years), about=f"{years:+d}"
        )
        rules = {each["rule"] for each in (seen.report or {}).get("findings", ())}
        assert ("ignore-expired" in rules) == (years > 0), (years, rules)
        yield seen


@fault("clock", "all files have timestamps in the future or in 1970")
def file_timestamps(ground: Ground) -> Iterator[FaultOutcome]:
    """Modification times of files do not affect the result."""
    for when in (time.time() + 10 * YEAR_S, 1.0):
        ground.own_environments()
        for folder in (ground.project, ground.cache, ground.temporary):
            for here, _, names in os.walk(folder):
                for name in names:
                    os.utime(Path(here, name), (when, when), follow_symlinks=False)
        yield ground.check(expected=(0,), about="1970" if when < 2 else "the future")
