"""The check before a release: the tag, the package, the changelog, pages and workflows name one release."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnxgate import __version__
from tests.harness.repositories.checkout import ROOT, git
from tools import check_release

CHANGELOG = f"# Changelog\n\n## {__version__} (2026-12-01)\n\nFirst release.\n\n### Checks\n\n- one\n"
OLDER = "\n## 0.0.9 (2026-01-01)\n\n- older\n"
PLACES = {
    "README.md": ["onnxgate@v", "    rev: v"],
    "docs/guides/action.md": ["onnxgate@v"],
    "docs/guides/pre-commit.md": ["    rev: v"],
    "docs/install.md": ['required-version = ">='],
    "docs/reference/action.md": ["onnxgate@v", "comment@v"],
    "docs/reference/config.md": ["onnxgate/onnxgate/v"],
    "examples/onnxgate.yml": ["onnxgate@v"],
    "examples/onnxgate-comment.yml": ["comment@v"],
    "examples/onnxgate-matrix.yml": ["onnxgate-matrix.yml@v"],
    "fixtures/projects/quickstart/.pre-commit-config.yaml": ["    rev: v"],
    "fixtures/projects/quickstart/.github/workflows/onnxgate.yml": ["onnxgate@v"],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a copy of the files that name a release, with a dated changelog."""
    (tmp_path / "onnxgate").mkdir()
    for name in ("onnxgate/__init__.py", *PLACES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG + OLDER, encoding="utf-8")
    return tmp_path


def test_this_checkout_names_one_release() -> None:
    """Pages, examples, workflows and hooks name the version of the package, and so does the changelog."""
    section = check_release.newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))

    assert [] == list(check_release.find_other_releases(ROOT, __version__))
    assert __version__ == section.release
    assert section.date == "unreleased" or check_release.DATE.fullmatch(section.date)


def test_all_places_are_read() -> None:
    """A search for the version finds no file that the check does not know."""
    read = {path for pattern in check_release.FILES for path in ROOT.glob(pattern)}
    tracked = git(ROOT, "ls-files", "*.md", "*.yml", "*.yaml", ":!tests").splitlines()
    naming = {name for name in tracked if check_release.NAMED.search((ROOT / name).read_text(encoding="utf-8"))}

    assert set(PLACES) <= {path.relative_to(ROOT).as_posix() for path in read}
    assert set() == {name for name in naming if ROOT / name not in read}


def test_a_release_has_no_problems(root: Path) -> None:
    """The notes are the newest section of the changelog, without its heading."""
    notes = root / "notes.md"

    assert 0 == check_release.main([f"v{__version__}", "--notes", str(notes)], root)
    assert "First release.\n\n### Checks\n\n- one\n" == notes.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "before"), [(name, text) for name, texts in PLACES.items() for text in texts])
def test_another_release_is_reported(root: Path, name: str, before: str) -> None:
    """Each place that names another release is reported with its line."""
    text = (root / name).read_text(encoding="utf-8")
    at = text.index(before) + len(before)
    (root / name).write_text(f"{text[:at]}9{text[at:]}", encoding="utf-8")
    [problem] = check_release.find_problems(root, f"v{__version__}")

    assert problem.startswith(f"{name}:{text.count(chr(10), 0, at) + 1}: names ")


@pytest.mark.parametrize(
    ("changelog", "expected"),
    [
        (CHANGELOG.replace("2026-12-01", "unreleased"), "the newest section has the date `unreleased`"),
        (OLDER, f"the newest section is 0.0.9 instead of {__version__}"),
        ("# Changelog\n", f"the newest section is missing instead of {__version__}"),
        (f"## {__version__} (2026-12-01)\n{OLDER}", "the newest section is empty"),
    ],
)
def test_changelog_must_describe_the_release(root: Path, changelog: str, expected: str) -> None:
    """A release has a dated section in the changelog, which is not empty."""
    (root / "CHANGELOG.md").write_text(changelog, encoding="utf-8")

    problem, *_ = check_release.find_problems(root, f"v{__version__}")

    assert problem.startswith(f"CHANGELOG.md: {expected}")


def test_tag_must_be_the_version(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tag of another version fails, and writes no notes."""
    status = check_release.main(["v9.9.9", "--notes", str(root / "notes.md")], root)

    assert (1, False) == (status, (root / "notes.md").exists())
    assert (
        f"error: onnxgate/__init__.py: the version is {__version__}, but the tag is v9.9.9\n" == capsys.readouterr().err
    )
