"""A repository whose script calls `torch.onnx.export` is set up with `init` and one added line."""

from __future__ import annotations

import pytest

from tests.harness.repositories.export_script import MODEL
from tests.harness.repositories.user_repository import Repository, brief

pytestmark = [pytest.mark.index, pytest.mark.torch]


def test_passes(joined: Repository) -> None:
    """The model runs, and the script reproduces it."""
    report = joined.report()

    assert (report["verdict"], report["findings"], report["undecided"]) == ("pass", [], [])
    assert report["stages"][-1] == "export"
    assert (report["counts"]["ran"], report["counts"]["without_source"]) == (1, 0)


def test_a_changed_script(joined: Repository) -> None:
    """Different weights are found before the new file is committed."""
    joined.edit("export.py", "SEED = 7", "SEED = 8")
    report = joined.report("--stage", "export", status=1)

    assert [brief(finding) for finding in report["findings"]] == [("error", "export-stale", MODEL)]
    assert "weight `mix.weight` differs" in report["findings"][0]["message"]


def test_a_script_that_fails(joined: Repository) -> None:
    """The finding points to the failing line of the script."""
    joined.edit("export.py", "    torch.manual_seed(SEED)\n", "    torch.manual_seed(NO_SEED)\n")
    report = joined.report("--stage", "export", status=1)
    place = report["findings"][0]["place"]

    assert [brief(finding) for finding in report["findings"]] == [("error", "export-failed", MODEL)]
    assert (place["path"], joined.read("export.py").splitlines()[place["line"] - 1].strip()) == (
        "export.py",
        "torch.manual_seed(NO_SEED)",
    )
