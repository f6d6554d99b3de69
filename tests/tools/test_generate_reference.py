"""The generated files in `docs/reference/` match the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from onnxgate.project.config import schema
from onnxgate.project.toml import loads

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "generate_reference.py"


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code that uses the tool as a module."""
    whole = f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import generate_reference as tool; {code}"
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_reference_is_current() -> None:
    """The generated files are current; after a change of a type or a rule they must be regenerated."""
    checked = run("sys.exit(tool.main(['--check']))")

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_outdated_files_are_named(tmp_path: Path) -> None:
    """A missing or modified file is outdated, and writing makes all files current."""
    folder = f"tool.Path({str(tmp_path)!r})"
    run(f"tool.write({folder})")
    (tmp_path / "reference" / "report.schema.json").write_text("{}", encoding="utf-8")
    (tmp_path / "rules" / "model-changed.md").unlink()
    (tmp_path / "rules" / "no-more.md").touch()

    result = run(f"print(tool.stale({folder})); tool.write({folder}); print(tool.stale({folder}))")

    assert result.stdout == "['reference/report.schema.json', 'rules/model-changed.md', 'rules/no-more.md']\n[]\n"


@pytest.mark.parametrize("project", ["quickstart", "broken"])
def test_our_projects_hold_to_the_schema_of_the_config(project: str) -> None:
    """The projects' configs are valid under the schema, so that editors show no errors."""
    config = loads((ROOT / "fixtures/projects" / project / "onnxgate.toml").read_text(encoding="utf-8"))

    jsonschema.Draft202012Validator(schema.json_schema()).validate(config)
