"""Each YAML block in README.md and the documentation is accepted by the programs that read such files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import need
from tests.harness.repositories.checkout import ROOT
from tests.harness.yaml_blocks import YamlBlock, read_yaml_blocks

WORKFLOWS = read_yaml_blocks("workflow", "job", "steps")
POLICY = 'rules: {unpinned-uses: {config: {policies: {"*": ref-pin}}}}\n'
"""Blocks in pages name releases, which a reader understands; files in `examples/` pin commits."""


def accepts(folder: Path, block: YamlBlock, text: str, *command: str) -> None:
    """Run a validator on the text of the block."""
    file = folder / f"{block.name}.yml"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run([need(command[0]), *command[1:], file], capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr


def test_every_block_is_validated() -> None:
    """The kind of each block is known, and the README has a whole workflow and a whole config of hooks."""
    blocks = read_yaml_blocks()

    assert [] == [block.name for block in blocks if not block.kind]
    assert ["workflow", "hooks"] == [block.kind for block in blocks if block.page == "README.md"]
    assert {"docs/tutorial.md", "docs/guides/lfs.md", "docs/guides/formats.md"} <= {block.page for block in blocks}


@pytest.mark.surface
@pytest.mark.parametrize("block", WORKFLOWS, ids=lambda block: block.name)
def test_workflows_match_the_schema(tmp_path: Path, block: YamlBlock) -> None:
    """GitHub's schema of workflows accepts the block."""
    accepts(tmp_path, block, block.workflow, "check-jsonschema", "--builtin-schema=vendor.github-workflows")


@pytest.mark.surface
@pytest.mark.parametrize("block", WORKFLOWS, ids=lambda block: block.name)
def test_workflows_pass_the_audit(tmp_path: Path, block: YamlBlock) -> None:
    """A reader who copies the block gets no security findings, except that releases can be pinned to commits."""
    (tmp_path / "policy.yml").write_text(POLICY, encoding="utf-8")
    audit = ("--offline", "--no-progress", "--persona=auditor", "--strict-collection")
    accepts(tmp_path, block, block.workflow, "zizmor", *audit, f"--config={tmp_path / 'policy.yml'}")


@pytest.mark.surface
@pytest.mark.parametrize("runner", ["pre-commit", "prek"])
@pytest.mark.parametrize("block", read_yaml_blocks("hooks"), ids=lambda block: block.name)
def test_hooks_are_valid(tmp_path: Path, block: YamlBlock, runner: str) -> None:
    """The hook runner accepts the config, which names existing hooks."""
    manifest = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    named = [hook["id"] for repository in yaml.safe_load(block.text)["repos"] for hook in repository["hooks"]]

    accepts(tmp_path, block, block.text, runner, "validate-config")
    assert set(named) <= {hook["id"] for hook in manifest}


@pytest.mark.surface
@pytest.mark.parametrize("block", read_yaml_blocks("gitlab"), ids=lambda block: block.name)
def test_gitlab_jobs_match_the_schema(tmp_path: Path, block: YamlBlock) -> None:
    """GitLab's schema accepts the block."""
    accepts(tmp_path, block, block.text, "check-jsonschema", "--builtin-schema=vendor.gitlab-ci")
