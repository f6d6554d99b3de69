"""The static stages find the mutants of backend models that a release refuses; the campaign checks more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.conformance import backend_models, corpora, environments, mutants
from campaigns.conformance.mutant_comparison import MutantCounts, compare_mutants, count

SIZE = 1000
RELEASE = "1.31.1"


@pytest.mark.index
def test_refused_mutants_are_found(shared_folder: Path) -> None:
    """Nearly all refused mutants are found, none of those that `onnx.checker` refuses passes, and none is blamed."""
    home = environments.cache(shared_folder / "conformance")
    models = list(backend_models.distinct(backend_models.generated()).items())
    corpus = corpora.write(dict(mutants.every(models, SIZE)), home / "quick" / "mutants.zip")

    (counts,) = compare_mutants(corpus, (RELEASE,), home)

    assert counts.loads > SIZE // 8
    assert counts.refused > SIZE // 2
    assert ([], 0, True) == (counts.false_alarms, counts.checker_refuses, counts.is_good), counts.misses


def test_mutants_are_reproducible() -> None:
    """The same seed gives the same mutants, each of which differs from its original."""
    models = [(name, data) for name, data in backend_models.generated() if name.endswith("test_gemm_all_attributes")]

    made = list(mutants.every(models, 40))

    assert made == list(mutants.every(models, 40))
    assert not {data for _, data in made} & {data for _, data in models}


def test_each_outcome_is_counted() -> None:
    """A refused mutant is found, undecided or missed, and one that loads may be a false alarm."""
    results = {
        "found": ('{"fault": "x", "checker": "", "predicted": {}, "unchecked": ""}', "refused"),
        "predicted": ('{"fault": "", "checker": "", "predicted": {"r": ["refused", "y"]}, "unchecked": ""}', "refused"),
        "undecided": ('{"fault": "", "checker": "", "predicted": {"r": ["unknown"]}, "unchecked": ""}', "refused"),
        "missed": ('{"fault": "", "checker": "z", "predicted": {"r": ["loads"]}, "unchecked": ""}', "refused"),
        "false": ('{"fault": "", "checker": "", "predicted": {"r": ["refused", "y"]}, "unchecked": ""}', ""),
        "own": ('{"fault": "w", "checker": "", "predicted": {}, "unchecked": ""}', ""),
        "invalid": ('{"fault": "w", "checker": "w", "predicted": {}, "unchecked": ""}', ""),
        "crash": ("crashed: exit status -11", "refused"),
    }

    counts = count("r", {k: v[0] for k, v in results.items()}, {k: v[1] for k, v in results.items()})

    assert (2, 1, ["missed: refused (onnx.checker: z)"], 1) == (
        counts.found,
        counts.undecided,
        counts.misses,
        counts.checker_refuses,
    )
    assert (3, ["false: y", "own: w"], 1) == (counts.loads, counts.false_alarms, counts.invalid)
    assert not counts.is_good


def test_mutants_that_the_checker_refuses_must_be_found() -> None:
    """One missed mutant of many is accepted, unless `onnx.checker` refuses it."""
    counts = MutantCounts("r", found=999, misses=["x"])
    assert counts.is_good

    counts.checker_refuses = 1

    assert not counts.is_good
