"""Write `docs/reference/` from the code: JSON Schemas of config, matrix and report; `--check` fails where stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from onnxgate import rules
from onnxgate.config import schema as config
from onnxgate.formats import json as report
from onnxgate.formats import matrix_json as matrix

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def contents() -> dict[str, str]:
    """Every generated file by its name."""
    return {
        "config.schema.json": _pretty(config.schema(rules.by_id)),
        "matrix.schema.json": _pretty(matrix.json_schema()),
        "report.schema.json": _pretty(report.json_schema()),
    }


def _pretty(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def stale(folder: Path) -> list[str]:
    """Names of files that are not what the code says now."""
    return [name for name, text in contents().items() if not _is(folder / name, text)]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def write(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents().items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    """Write, or with `--check` say what is stale."""
    if arguments != ["--check"]:
        write(FOLDER)
        return 0
    names = stale(FOLDER)
    for name in names:
        print(f"docs/reference/{name} is stale: run `python tools/generate_reference.py`")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
