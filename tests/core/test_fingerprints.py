"""Fingerprints that identify a finding across commits."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.findings import Hit, Level, OnRuntime, Place, RuleHit, Stage, assign_fingerprints

PLACE = Place("onnxgate.lock", 7)
RUNTIMES = ("onnxruntime 1.9.0", "onnxruntime 1.18.1", "onnxruntime 1.31.1")


def judged(
    message: str = "is amiss",
    *,
    silent: bool = False,
    place: Place = PLACE,
    runtime: str = "",
    detail: str = "",
    **more: str,
) -> RuleHit:
    """Create one hit of a rule in a model."""
    on = OnRuntime(runtime, detail) if runtime else None
    hit = Hit(place, message, model="m.onnx", on=on, **more)  # type: ignore[arg-type]
    return RuleHit("load-failed", Stage.RUNTIME, Level.ERROR, hit, silent=silent)


def marks(*hits: RuleHit) -> list[str]:
    """Return the fingerprints of the hits."""
    return [fingerprinted.fingerprint for fingerprinted in assign_fingerprints(hits)]


def test_lines_runtimes_fixes_and_details_do_not_count() -> None:
    """The fingerprint does not depend on the release, the location, the fix or the details."""
    here = marks(judged(runtime=RUNTIMES[0], detail="says a", fix="wait"))
    there = marks(judged(runtime=RUNTIMES[1], detail="says b", fix="raise it", place=Place("export.py", 3)))

    assert here == there


def test_rule_model_and_identity_count() -> None:
    """A different rule, model or identity gives a different fingerprint."""
    other_rule = RuleHit("run-failed", Stage.RUNTIME, Level.ERROR, judged().hit)
    other_model = RuleHit("load-failed", Stage.RUNTIME, Level.ERROR, Hit(PLACE, "is amiss", model="n.onnx"))

    assert len(set(marks(judged(), judged(identity="x"), other_rule, other_model))) == 4


def test_the_message_does_not_count() -> None:
    """A reworded finding keeps its fingerprint, also if the rule sets no identity."""
    assert marks(judged("is off by 0.1", identity="y")) == marks(judged("differs by 0.2", identity="y"))
    assert marks(judged("is amiss")) == marks(judged("is wrong"))


def test_numbers_follow_the_location() -> None:
    """If only the location distinguishes two findings, rewording does not exchange their fingerprints."""
    before = marks(judged("a", node="n_1"), judged("b", node="n_2"))

    assert before == marks(judged("z", node="n_1"), judged("y", node="n_2"))


def test_identical_hits_are_numbered() -> None:
    """Hits with identical text are numbered: a third one gets a new fingerprint, and the first two keep theirs."""
    one = marks(judged("node `a_1`", node="a_1"))
    two = marks(judged("node `a_2`", node="a_2"), judged("node `a_3`", node="a_3"))
    three = marks(*(judged(f"node `a_{number}`", node=f"a_{number}") for number in (4, 5, 6)))

    assert set(one) < set(two) < set(three)
    assert (len(set(two)), len(set(three))) == (2, 3)


def test_newer_runtime_does_not_take_over_a_fingerprint() -> None:
    """A hit on a newer runtime must not take the fingerprint that the hit on an older one had."""
    old = judged("node `a_9`", node="a_9", runtime=RUNTIMES[1])
    new = judged("node `a_1`", node="a_1", runtime=RUNTIMES[2])

    assert marks(new, old)[1] == marks(old)[0]
    assert marks(new, old)[0] != marks(old)[0]


def test_disabled_rule_has_no_fingerprint() -> None:
    """A hit of a disabled rule has no fingerprint and does not affect the others."""
    assert marks(judged(silent=True), judged("node `a_1`", node="a_1"))[0] == ""


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.sampled_from(RUNTIMES)), max_size=12))
def test_one_fingerprint_is_one_finding(found: list[tuple[str, int, str]]) -> None:
    """Hits with equal messages share a fingerprint, others do not, and the order of the hits does not matter."""
    hits = [judged(f"node `{kind}_{n}`", node=f"{kind}_{n}", runtime=runtime) for kind, n, runtime in found]
    by_hit = {fingerprinted.hit: fingerprinted.fingerprint for fingerprinted in assign_fingerprints(hits)}
    shuffled = random.Random(0).sample(hits, len(hits))

    assert len(set(by_hit.values())) == len({hit.message for hit in by_hit})
    assert all(len(mark) == 16 for mark in by_hit.values())
    assert by_hit == {fingerprinted.hit: fingerprinted.fingerprint for fingerprinted in assign_fingerprints(shuffled)}
