"""Run `python -m campaigns.faults` to print each fault with the message and exit status; exits 1 on a violation.

`--all` runs every variant. NAMES select faults, and only their rows are updated. `--markdown` prints the page for the
docs, and `--write FILE` writes it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from campaigns.faults.all_faults import FAULTS
from campaigns.faults.docs_table import Row, markdown, renewed, row, text
from campaigns.faults.invariants import FaultOutcome, find_violations
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import Fault
from tests.conftest import _install_wheel, _program


def main() -> int:
    """Run the faults and print the results."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.faults", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--cache", type=Path, help="folder of environments; missing ones are created there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as scratch:
        home = Path(scratch)
        program = options.program or _installed(home)
        rows, wrong, runs = [], 0, 0
        truths: dict[str, dict[str, Any]] = {}
        began = time.monotonic()
        for name, each in FAULTS.items():
            if options.names and name not in options.names:
                continue
            ground = Ground(program, (options.cache or home / "shared").absolute(), home / name, options.all, truths)
            start = time.monotonic()
            one = _made(each, ground)
            rows.append(one)
            wrong, runs = wrong + len(one.wrong), runs + one.runs
            print(f"[{time.monotonic() - start:.1f} s] {text(one)}", file=sys.stderr, flush=True)
    page = markdown(rows)
    if options.write:
        old = options.write.read_text(encoding="utf-8") if options.names and options.write.exists() else ""
        options.write.write_text(renewed(old, page) if old else page, encoding="utf-8")
    if options.markdown:
        print(page)
    print(f"{len(rows)} faults, {runs} runs, {wrong} wrong, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return 1 if wrong else 0


def _made(each: Fault, ground: Ground) -> Row:
    seen: list[FaultOutcome] = []
    try:
        for one in each.make(ground.laid()):
            seen.append(one)
    except pytest.skip.Exception as skipped:
        return row(each, [], [], ground, skipped=str(skipped))
    except Exception as error:  # noqa: BLE001 - an error in one fault must not stop the others
        return row(each, seen, [f"the fault could not be caused: {error!r}"], ground)
    return row(each, seen, [wrong for one in seen for wrong in find_violations(one)], ground)


def _installed(home: Path) -> Path:
    with FileLock(home / "installed.lock"):
        _install_wheel(home / "installed")
    return _program(home / "installed" / "venv", "onnxgate")


if __name__ == "__main__":
    sys.exit(main())
