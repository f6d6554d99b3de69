"""onnxgate's steps and hooks in existing files."""

from __future__ import annotations

import pytest

from onnxgate.commands.init.existing_files import align_hooks, align_step, find_checked_folders

STEP = "steps:\n  - uses: onnxgate/onnxgate@v1\n    with:\n      {}\n  - uses: a/b@v1\n    with: {{directory: x}}\n"
HOOK = "repos:\n- repo: https://github.com/onnxgate/onnxgate\n  hooks:\n  - id: onnxgate\n    {}\n"


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        (STEP.format("working-directory: ml"), {"ml"}),
        (STEP.format('working-directory: "./my ml/" # x'), {"my ml"}),
        (STEP.format("working-directory: svc2"), {"svc2"}),
        (STEP.format("fetch: true # working-directory: ml"), {""}),
        (
            "steps:\n- run: onnxgate check --directory svc/a\n- run: onnxgate check --config=svc/b/o.toml\n",
            {"svc/a", "svc/b"},
        ),
        ("steps:\n- name: Check models\n  run: ls\n  working-directory: models\n", set()),
        (HOOK.format('args: ["--config", "ml/onnxgate.toml"] # x'), {"ml"}),
        (HOOK.format('args: ["--directory", "my ml"]'), {"my ml"}),
        (HOOK.format("args:\n    - --config\n    - ml/onnxgate.toml"), {"ml"}),
        (HOOK.format("args: []") + "  - id: onnxgate-run\n    args: [--directory, ml]\n", {"", "ml"}),
        ("repos:\n- repo: local\n  hooks:\n  - id: check-svc\n", set()),
        ("", set()),
    ],
)
def test_folders_that_are_checked(text: str, folders: set[str]) -> None:
    """Only the values of options count: a folder name occurs in other lines, and in longer names."""
    assert find_checked_folders(text) == folders


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repos:\n- repo: x\n", "- repo: a\n  rev: b\n"),
        ("repos:\n    - repo: x\n", "    - repo: a\n      rev: b\n"),
        ("repos: []\n", "  - repo: a\n    rev: b\n"),
    ],
)
def test_hooks_have_the_column_of_the_other_hooks(text: str, expected: str) -> None:
    """Entries of a list must start in the same column."""
    assert align_hooks("  - repo: a\n    rev: b\n", text) == expected


def test_a_step_has_the_column_of_the_other_steps() -> None:
    """A list may have the column of its key; comments before its first entry are skipped."""
    text = "jobs:\n  a:\n    steps: # x\n\n    # y\n    - run: ls\n"

    assert align_step("      - uses: a\n        with: b\n", text) == "    - uses: a\n      with: b\n"
