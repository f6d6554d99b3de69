"""Harvest kernels, schemas and limits from the official wheels of ONNX Runtime, and write the shipped data.

    python tools/harvest_support.py                       # every release on the index since 1.8
    python tools/harvest_support.py --missing             # only releases that are not in the data yet
    python tools/harvest_support.py --missing --list      # list them without harvesting
    python tools/harvest_support.py 1.31.0 1.31.1         # only these; other releases stay unchanged
    python tools/harvest_support.py --check [RELEASE …]   # write nothing; exit 1 if a file would differ

Each release is installed in a temporary environment like a locked runtime; a worker reports its kernels and schemas,
and loads tiny models. Measurements are stored in the work folder, so that an interrupted run can continue. The same
wheels always result in the same files. Linux x86_64 only; interpreters are found as for `onnxgate lock`
(`ONNXGATE_PYTHON_PATH`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harvest import data, measuring, releases

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Harvest, then write or compare the files."""
    options = _parser().parse_args()
    known = data.read(options.data)
    selected = releases.find(options.releases)
    if options.missing:
        selected = tuple(each for each in selected if each.release not in known.limits)
    if options.list:
        print("".join(f"{each.release}\n" for each in selected), end="")
        return 0
    records = [_record(options.work, each) for each in selected]
    made = data.files(data.merged(known, records))
    return _check(options.data, made) if options.check else _write(options.data, made)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    parser.add_argument("--missing", action="store_true", help="only releases that are not in the data yet")
    parser.add_argument("--list", action="store_true", help="list the releases, one per line, without harvesting")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would differ")
    parser.add_argument("--data", type=Path, default=ROOT / "onnxgate" / "support" / "data", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "harvest", metavar="FOLDER")
    return parser


def _record(work: Path, installable: releases.Installable) -> measuring.Record:
    record = measuring.recorded(work, installable)
    print(installable.release, "is already measured" if record else "is being measured", flush=True)
    return record or measuring.measure(work, installable)


def _check(folder: Path, made: dict[str, bytes]) -> int:
    stale = [name for name, content in made.items() if not data.is_same(folder / name, content)]
    for name in stale:
        print(f"{name} would differ")
    return 1 if stale else 0


def _write(folder: Path, made: dict[str, bytes]) -> int:
    for name, content in made.items():
        (folder / name).write_bytes(content)
        print(f"{name}: {len(content)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
