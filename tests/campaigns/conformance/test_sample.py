"""Compare predictions of a sample with real loads on eight releases; `campaigns.conformance` runs all models."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from campaigns.conformance import corpora, environments
from campaigns.conformance.comparison import Comparison, compare
from campaigns.conformance.known_disagreements import unexplained
from campaigns.conformance.load_outcome import BACKEND, FUZZ
from campaigns.conformance.real_loads import observed
from campaigns.conformance.sample import QUICK_RELEASES, SIZE, backend_models, sampled
from campaigns.conformance.suite import fuzzed, prepared

pytestmark = pytest.mark.index


@pytest.fixture(scope="module")
def home(shared_folder: Path) -> Path:
    """Return the cache folder of environments and models."""
    return environments.cache(shared_folder / "conformance")


@pytest.fixture(scope="module")
def backend_corpus(home: Path) -> Path:
    """Return the sample of backend models, generated once."""
    path = home / "quick" / "backend.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        return path if path.exists() else corpora.write(backend_models(home), path)


@pytest.mark.parametrize("release", QUICK_RELEASES)
def test_backend_models_behave_as_predicted(release: str, home: Path, backend_corpus: Path) -> None:
    """No refusal is predicted wrongly, and every other disagreement has an explanation."""
    comparison = _compared(BACKEND, release, backend_corpus, home)

    assert [] == [each.line() for each in unexplained(comparison.disagreements)]
    assert comparison.right["loads"] > SIZE // 3
    assert comparison.right["refused"] > 0


@pytest.mark.parametrize("release", QUICK_RELEASES)
def test_single_operators_behave_as_predicted(release: str, home: Path) -> None:
    """Single operators with types that their schemas allow are predicted correctly."""
    models = corpora.write(sampled(fuzzed(release, home)), home / "quick" / f"fuzz-{release}.zip")

    comparison = _compared(FUZZ, release, models, home)

    assert [] == [each.line() for each in unexplained(comparison.disagreements)]
    assert comparison.right["loads"] > SIZE // 3
    assert comparison.right["refused"] > SIZE // 10


def _compared(corpus: str, release: str, models: Path, home: Path) -> Comparison:
    python = environments.python_of(release, home)
    texts = observed(python, models, home / "quick" / f"{release}-{corpus}.json")
    return compare(Comparison(corpus, "all", release), prepared(corpora.models(models)), texts)
