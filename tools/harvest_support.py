"""Harvest kernels, schemas and limits from the official packages of an engine, and write the shipped data.

    python tools/harvest_support.py                       # every release of ONNX Runtime on the index since 1.8
    python tools/harvest_support.py --missing             # only releases that are not in the data yet
    python tools/harvest_support.py --missing --list      # list them without harvesting
    python tools/harvest_support.py 1.31.0 1.31.1         # only these; other releases stay unchanged
    python tools/harvest_support.py --check [RELEASE …]   # write nothing; exit 1 if a file would differ
    python tools/harvest_support.py --engine onnxruntime-web [OPTION …] [RELEASE …]   # another engine

Each release of ONNX Runtime is installed in a temporary environment like a locked runtime; a worker reports its kernels
and schemas, and loads tiny models. Releases of other engines load models with one node instead. Measurements are stored
in the work folder, so that an interrupted run can continue. The same packages always result in the same files. Linux
x86_64 only; interpreters are found as for `onnxgate lock` (`ONNXGATE_PYTHON_PATH`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from harvest import data, measuring, probed, web

ROOT = Path(__file__).resolve().parents[1]
HARVESTERS: dict[str, Any] = {
    module.DESCRIPTION.engine: module for module in (measuring, web, probed.OPENVINO, probed.TRACT)
}
"""For each engine, the module with its `DESCRIPTION` and the functions `find`, `recorded` and `measure`."""


def main() -> int:
    """Harvest, then write or compare the files."""
    options = _parser().parse_args()
    harvester = HARVESTERS[options.engine]
    known = data.read(options.data, harvester.DESCRIPTION)
    selected = harvester.find(options.releases)
    if options.missing:
        selected = tuple(each for each in selected if each.release not in known.limits)
    if options.list:
        print("".join(f"{each.release}\n" for each in selected), end="")
        return 0
    records = [_record(harvester, options.work, each) for each in selected]
    made = data.files(data.merged(known, records))
    return _check(options.data, made) if options.check else _write(options.data, made)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", metavar="RELEASE")
    parser.add_argument("--engine", choices=list(HARVESTERS), default="onnxruntime")
    parser.add_argument("--missing", action="store_true", help="only releases that are not in the data yet")
    parser.add_argument("--list", action="store_true", help="list the releases, one per line, without harvesting")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would differ")
    parser.add_argument("--data", type=Path, default=ROOT / "onnxgate" / "support" / "data", metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "harvest", metavar="FOLDER")
    return parser


def _record(harvester: Any, work: Path, release: Any) -> data.Record:
    record: data.Record | None = harvester.recorded(work, release)
    print(release.release, "is already measured" if record else "is being measured", flush=True)
    return record or harvester.measure(work, release)


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
