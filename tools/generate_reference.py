"""Generate pages and schemas in `docs/` from the code. With `--check`, fail if a file is outdated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from reference import action, api, commands, errors, keys
from reference import rules as rule_pages
from reference.comments import describe

from onnxgate import __version__, rules
from onnxgate.core import inventory as inventory_types
from onnxgate.core import matrix as matrix_types
from onnxgate.core import report as report_types
from onnxgate.core.report_json import build_schema, report_schema
from onnxgate.diagnostics import log_explanation as log_types
from onnxgate.model.diff import result as difference_types
from onnxgate.project.config import schema as config
from onnxgate.project.config import schema as config_types
from onnxgate.support.answers import operator_answers as answer_types

FOLDER = Path(__file__).resolve().parent.parent / "docs"
CONFIG = f"""
The config is the file `onnxgate.toml`, or the table `[tool.onnxgate]` in `pyproject.toml`. Paths are relative to the
folder of this file. Unknown keys, and values of the wrong type, are errors.

Editors with [taplo](https://taplo.tamasfe.dev) complete and validate `onnxgate.toml` if its first line names the
{{download}}`JSON Schema <config.schema.json>`:

```toml
#:schema https://raw.githubusercontent.com/onnxgate/onnxgate/v{__version__}/docs/reference/config.schema.json
```
"""
WRITTEN = {
    "Target": "[targets.NAME]",
    "Toolchain": "[toolchain]",
    "ModelSettings": "[[model]]",
    "Tolerance": "tolerance = { OUTPUT = { rtol = 1e-3, atol = 1e-5 } }",
    "Budget": "budget = { size-mib = 40 }",
    "Ignore": "[[ignore]]",
    "Limits": "[limits]",
}
"""The TOML syntax of each table in the config."""
REPORT = """
The output of `onnxgate check --output json`. Lists are sorted; dates and host names are not included. The
{download}`JSON Schema <report.schema.json>` is [stable](../stability.md). The objects in `drawings` and `shard` are
described only in the schema.
"""
SCHEMA_ONLY = frozenset(
    {"Shard", "SharedHit", "SharedIgnore", "SharedNames", "AskedName", "Drawing", "DrawnNode", "DrawnEdge"}
)
"""Types that the page omits: only `onnxgate merge` and the report formats read them."""
INVENTORY = """
The output of `onnxgate runtimes list --output json`, with its {download}`JSON Schema <inventory.schema.json>`.
"""
REPORT_TYPES = frozenset({"Finding", "NotDone", "ReportedPlace"})
"""Report types that the matrix schema contains."""
MATRIX = """
The output of `onnxgate matrix --output json`, with its {download}`JSON Schema <matrix.schema.json>`.

The verdict is the same as for `onnxgate check` without a config. The [report](report.md#finding) describes the keys of
`findings` and `undecided`.
"""
LOG = """
The output of `onnxgate explain --log FILE --output json`, with its {download}`JSON Schema <log.schema.json>`.
"""
DIFF = """
The output of `onnxgate diff --output json`, with its {download}`JSON Schema <diff.schema.json>`.
"""
SUPPORT = """
The output of `onnxgate support --output json`, with its {download}`JSON Schema <support.schema.json>`.
"""

PREVIEW = """
The output of `onnxgate lock --upgrade --preview --output json`, with its {download}`JSON Schema
<preview.schema.json>`. It can change in every release, since the action `pull-request` reads only proposals of its own
release. The [report](report.md) describes the keys of `after`, and of the findings.
"""


def contents() -> dict[str, str]:
    """Return the content of each generated file by its path in `docs/`."""
    schemas = {
        "config": describe(config.json_schema(rules.by_id), _kinds(config_types)),
        "diff": _describe_answer(difference_types, "Difference", "Difference between two models (onnxgate diff)"),
        "inventory": _describe_answer(inventory_types, "Inventory", "Inventory of runtimes (onnxgate runtimes list)"),
        "log": _describe_answer(log_types, "ExplainedLog", "Explained log (onnxgate explain)"),
        "matrix": _describe_answer(matrix_types, "Matrix", "Support matrix (onnxgate matrix)", report_types),
        "preview": _describe_answer(report_types, "UpgradeProposal", "Preview of an upgrade (onnxgate lock --preview)"),
        "report": describe(report_schema(), _kinds(report_types)),
        "support": _describe_answer(answer_types, "SupportAnswer", "Answer about support (onnxgate support)"),
    }
    return {
        **{f"reference/{name}.schema.json": _pretty(schema) for name, schema in schemas.items()},
        "reference/action.md": action.page(),
        "reference/api.md": api.page(),
        "reference/cli.md": commands.page(),
        "reference/config.md": keys.page("Configuration", CONFIG, schemas["config"], ("Config",), WRITTEN),
        "reference/errors.md": errors.page(),
        "reference/log.md": keys.page("Explained log (JSON)", LOG, schemas["log"], ("ExplainedLog",)),
        "reference/report.md": keys.page("Report (JSON)", REPORT, schemas["report"], ("Report",), hidden=SCHEMA_ONLY),
        "reference/diff.md": keys.page("Diff (JSON)", DIFF, schemas["diff"], ("Difference",)),
        "reference/inventory.md": keys.page("Runtimes (JSON)", INVENTORY, schemas["inventory"], ("Inventory",)),
        "reference/matrix.md": keys.page("Matrix (JSON)", MATRIX, schemas["matrix"], ("Matrix",), hidden=REPORT_TYPES),
        "reference/support.md": keys.page("Support (JSON)", SUPPORT, schemas["support"], ("SupportAnswer",)),
        "reference/preview.md": keys.page(
            "Upgrade preview (JSON)",
            PREVIEW,
            schemas["preview"],
            ("UpgradeProposal",),
            hidden=frozenset(schemas["report"]["$defs"]),
        ),
        **{f"rules/{name}": page for name, page in rule_pages.pages().items()},
    }


def _describe_answer(module: Any, name: str, title: str, *others: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type. The types that it uses must be in the same module or in `others`."""
    kinds = {name: kind for it in (module, *others) for name, kind in _kinds(it).items()}
    return describe(build_schema(getattr(module, name), title), kinds)


def _kinds(module: Any) -> dict[str, type]:
    kinds = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, msgspec.Struct))
    return {kind.__name__: kind for kind in kinds if kind.__module__ == module.__name__}


def _pretty(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def stale(folder: Path) -> list[str]:
    """Return the paths of outdated files and of pages for removed rules."""
    made = contents()
    pages = {f"rules/{path.name}" for path in (folder / "rules").glob("*.md")}
    return [name for name, text in made.items() if not _is(folder / name, text)] + sorted(pages - made.keys())


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def write(folder: Path) -> None:
    """Write all files, and delete pages for removed rules."""
    made = contents()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for path in (folder / "rules").glob("*.md"):
        if f"rules/{path.name}" not in made:
            path.unlink()


def main(arguments: list[str]) -> int:
    """Write the files or, with `--check`, list outdated files; return the exit status."""
    if arguments != ["--check"]:
        write(FOLDER)
        return 0
    names = stale(FOLDER)
    for name in names:
        print(f"docs/{name} is outdated: run `python tools/generate_reference.py`")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
