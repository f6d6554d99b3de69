"""A load that hangs or crashes affects only one model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from campaigns.conformance import corpora, real_loads
from campaigns.conformance.real_loads import Observed, observed

CHILD = """
import json, os, sys, time, zipfile
corpus, level, first, record = sys.argv[2:]
with zipfile.ZipFile(corpus) as models, open(record, "a") as lines:
    for index, name in list(enumerate(models.namelist()))[int(first):]:
        print(json.dumps([index]), file=lines, flush=True)
        what = models.read(name).decode()
        if what == "crash":
            os._exit(7)
        time.sleep(100 if what == "hang" else 0)
        print(json.dumps([index, what]), file=lines, flush=True)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a loader that executes the instruction in each model."""
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    monkeypatch.setattr(real_loads, "CHILD", path)
    monkeypatch.setattr(real_loads, "TIMEOUT_S", 1)
    return path


def _corpus(folder: Path, **models: str) -> Path:
    return corpora.write({name: what.encode() for name, what in models.items()}, folder / "corpus.zip")


@pytest.mark.usefixtures("child")
def test_crash_of_a_child_affects_one_model(tmp_path: Path) -> None:
    """A crash or timeout of a child process affects only the model that caused it."""
    corpus = _corpus(tmp_path, a="", b="crash", c="crash", d="refused", e="hang", f="")

    actual = observed(Path(sys.executable), corpus, tmp_path / "found.json")

    crashed = "crashed: exit status 7"
    assert {"a": "", "b": crashed, "c": crashed, "d": "refused", "e": "timed out after 1 s", "f": ""} == actual


def test_results_are_reused_for_same_models_and_loader(tmp_path: Path, child: Path) -> None:
    """Results are reused only for the same models and the same loader."""
    stored = tmp_path / "found.json"
    python = Path(sys.executable)
    observed(python, _corpus(tmp_path, a=""), stored)
    kept = json.loads(stored.read_text())
    stored.write_text(json.dumps({**kept, "texts": {"a": "kept"}}))

    again = observed(python, _corpus(tmp_path, a=""), stored)
    changed = observed(python, _corpus(tmp_path, a="refused"), stored)
    child.write_text(CHILD + "# another one\n")
    reloaded = observed(python, _corpus(tmp_path, a="refused"), stored)

    assert [{"a": "kept"}, {"a": "refused"}, {"a": "refused"}] == [again, changed, reloaded]
    assert kept["corpus"] != json.loads(stored.read_text())["corpus"]
    assert ["corpus", "texts"] == list(Observed.__struct_fields__)


@pytest.mark.usefixtures("child")
def test_loader_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    """A loader that cannot start is an error, not a result."""
    (tmp_path / "child.py").write_text("raise SystemExit(3)")

    with pytest.raises(RuntimeError, match="loads no model: crashed: exit status 3"):
        observed(Path(sys.executable), _corpus(tmp_path, a=""), tmp_path / "found.json")
