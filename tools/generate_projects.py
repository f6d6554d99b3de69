"""Generate the models in `fixtures/projects`, and the findings that are expected for them.

Run it with a Python in which the `requirements.txt` of the projects is installed. The output is reproducible:

    python tools/generate_projects.py              # writes
    python tools/generate_projects.py --check      # writes nothing; exits 1 if a file differs
    python tools/generate_projects.py --as-locked FOLDER

The last command writes `broken` in the state in which it was locked: `onnxgate lock` then reproduces `onnxgate.lock`.
With `--check`, it also checks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from projects import broken, expected, hostile, quickstart

ROOT = Path(__file__).resolve().parents[1]
MADE = ("models/*", "*.bin", "expected.json", "samples/*")


def main() -> int:
    """Write or check all projects, or write `broken` in the state in which it was locked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--handmade", action="store_true", help="skip models that need torch")
    parser.add_argument(
        "--as-locked", type=Path, metavar="FOLDER", help="write `broken` in the state in which it was locked"
    )
    options = parser.parse_args()
    if options.as_locked:
        _write_as_locked(options.as_locked)
        if not options.check:
            return 0
    projects = made(with_exported=not options.handmade)
    problems = [text for folder, files in projects.items() for text in differences(folder, files, options.handmade)]
    if not options.check:
        for folder, files in projects.items():
            _write(ROOT / folder, files, clear=not options.handmade)
    print("\n".join(problems) or "all files are up to date")
    return 1 if problems and options.check else 0


def made(*, with_exported: bool) -> dict[Path, dict[str, bytes]]:
    """Return all generated files by project and path."""
    files = {
        quickstart.FOLDER: {},
        broken.FOLDER: broken.handmade_files() | _expected(broken.FOLDER, broken.EXPECTED),
        hostile.FOLDER: hostile.handmade_files() | _expected(hostile.FOLDER, hostile.EXPECTED),
    }
    if with_exported:
        files[quickstart.FOLDER] |= quickstart.exported_files(ROOT)
        files[broken.FOLDER] |= broken.exported_files(ROOT)
    return files


def _expected(folder: Path, findings: tuple[expected.Expected, ...]) -> dict[str, bytes]:
    return {"expected.json": expected.render(findings, ROOT / folder)}


def differences(folder: Path, files: Mapping[str, bytes], partly: bool) -> list[str]:
    """Compare a project's files with the generated files; return one line per difference."""
    there = {path.relative_to(ROOT / folder).as_posix() for glob in MADE for path in (ROOT / folder).glob(glob)}
    surplus = set() if partly else there - files.keys()
    changed = {name for name in there & files.keys() if not _is(ROOT / folder / name, files[name])}
    words = {"unexpected": surplus, "missing": files.keys() - there, "changed": changed}
    return [f"{word}: {(folder / name).as_posix()}" for word, names in words.items() for name in sorted(names)]


def _is(path: Path, content: bytes) -> bool:
    if isinstance(content, broken.Link) or path.is_symlink():
        return path.is_symlink() and broken.Link(os.fsencode(path.readlink())) == content
    return path.read_bytes() == content


def _write(folder: Path, files: Mapping[str, bytes], *, clear: bool) -> None:
    if clear:
        for path in [path for glob in MADE for path in folder.glob(glob)]:
            path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(content, broken.Link):
            path.symlink_to(os.fsdecode(content))
        else:
            path.write_bytes(content)


def _write_as_locked(folder: Path) -> None:
    shutil.copytree(ROOT / broken.FOLDER, folder, ignore=shutil.ignore_patterns("models", "*.bin", "expected.json"))
    config = (ROOT / broken.FOLDER / "onnxgate.toml").read_text(encoding="utf-8")
    files = {"onnxgate.toml": broken.config_as_locked(config).encode()}
    _write(folder, files | broken.handmade_files(as_locked=True) | broken.exported_files(ROOT), clear=False)


if __name__ == "__main__":
    sys.exit(main())
