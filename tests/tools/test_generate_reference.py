"""What `docs/reference/` publishes is what the code says."""

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
    """The tool, after some code has told it where to work."""
    whole = f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import generate_reference as tool; {code}"
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_reference_is_current() -> None:
    """Whoever changes a type or adds a rule generates it again."""
    checked = run("sys.exit(tool.main(['--check']))")

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_what_is_stale_is_named(tmp_path: Path) -> None:
    """A file that is missing or other is stale; writing makes all of them current."""
    folder = f"tool.Path({str(tmp_path)!r})"
    run(f"tool.write({folder})")
    (tmp_path / "reference" / "report.schema.json").write_text("{}", encoding="utf-8")
    (tmp_path / "rules" / "model-changed.md").unlink()
    (tmp_path / "rules" / "no-more.md").touch()

    said = run(f"print(tool.stale({folder})); tool.write({folder}); print(tool.stale({folder}))")

    assert said.stdout == "['reference/report.schema.json', 'rules/model-changed.md', 'rules/no-more.md']\n[]\n"


@pytest.mark.parametrize("project", ["quickstart", "broken"])
def test_our_projects_hold_to_the_schema_of_the_config(project: str) -> None:
    """An editor that knows the schema underlines nothing in them."""
    config = loads((ROOT / "fixtures/projects" / project / "onnxgate.toml").read_text(encoding="utf-8"))

    jsonschema.Draft202012Validator(schema.json_schema()).validate(config)
