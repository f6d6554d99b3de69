"""Which findings an `ignore` entry matches, and the findings about the entry itself."""

from __future__ import annotations

import datetime

import pytest

from onnxgate import rules
from onnxgate.core.findings import Hit, Level, Place, RuleHit, Stage, assign_fingerprints
from onnxgate.core.report import Finding
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.gate.results import resolution
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.project.config import globs
from onnxgate.project.config.schema import Ignore

TODAY = datetime.date(2027, 3, 31)
PLACE = Place("onnxgate.lock", 7)
CONTENT, OTHER = "a" * 64, "b" * 64


def hit(message: str = "is amiss", model: str = "m.onnx", rule: str = "missing-kernel") -> RuleHit:
    """Return one hit with its fingerprint."""
    (judged,) = assign_fingerprints(
        [RuleHit(rule, Stage.SUPPORT, Level.ERROR, Hit(PLACE, message, model=model, identity=message))]
    )
    return judged


def finding(judged: RuleHit) -> Finding:
    """Return the finding for one hit."""
    (found,) = resolution.merge_runtimes(resolution.resolve_hits([judged]), ())
    return found


def outcome(ignore: Ignore, judged: RuleHit, **more: object) -> tuple[str, bool, bool]:
    """Return the ignore reason of a finding, whether the entry matches it, and whether it accepts the hit."""
    ignores = Ignores([ignore], TODAY, **more)  # type: ignore[arg-type]
    (weighed,), (met,) = ignores.apply([finding(judged)])
    return weighed.ignored, bool(met), ignores.accepts(judged)


@pytest.mark.parametrize(("day", "expected"), [(30, ("", True, False)), (31, ("known", True, True))])
def test_entry_is_valid_until_its_last_day(day: int, expected: object) -> None:
    """The end date is included; one day later the entry ignores nothing."""
    ignore = Ignore(rule="missing-kernel", reason="known", until=datetime.date(2027, 3, day))

    assert expected == outcome(ignore, hit())


@pytest.mark.parametrize(
    ("glob", "model", "expected"),
    [
        ("**", "a/b.onnx", True),
        ("models/*.onnx", "models/a.onnx", True),
        ("models/**/*.onnx", "models/a.onnx", True),
        ("models/**/*.onnx", "models/x/y/a.onnx", True),
        ("models/a.onnx", "models/b.onnx", False),
        ("models/*.onnx", "other/a.onnx", False),
    ],
)
def test_globs(glob: str, model: str, expected: bool) -> None:
    """`**` matches any number of folders, including zero."""
    assert globs.matches(glob, model) is expected


def test_fingerprints_accept_only_their_findings() -> None:
    """A second finding of the same rule in the same model is not ignored."""
    ignore = Ignore(rule="missing-kernel", reason="known", fingerprints=(hit("one").fingerprint,))

    assert outcome(ignore, hit("one")) == ("known", True, True)
    assert outcome(ignore, hit("two")) == ("", False, False)
    assert outcome(ignore, hit("one", rule="type-mismatch")) == ("", False, False)
    assert outcome(ignore, hit("one", model="n.onnx")) == ("", False, False)


@pytest.mark.parametrize(("contents", "reason"), [({"m.onnx": CONTENT}, "known"), ({"m.onnx": OTHER}, ""), ({}, "")])
def test_sha256_accepts_one_content(contents: dict[str, str], reason: str) -> None:
    """A finding for a different or unknown content is not ignored."""
    ignore = Ignore(rule="missing-kernel", reason="known", sha256=CONTENT.upper())

    assert outcome(ignore, hit(), contents=contents) == (reason, bool(reason), bool(reason))


def test_sha256_does_not_accept_findings_without_a_model() -> None:
    """A finding without a model is matched only by an entry without `sha256`."""
    plain = Ignore(rule="lock-stale", reason="known")
    of_content = Ignore(rule="lock-stale", reason="known", sha256=CONTENT)

    assert outcome(plain, hit(model="", rule="lock-stale")) == ("known", True, True)
    assert outcome(of_content, hit(model="", rule="lock-stale"), contents={"": CONTENT}) == ("", False, False)


def test_finding_ignored_by_another_entry_is_not_resolved() -> None:
    """A finding that another entry ignores first must not be reported as resolved."""
    plain = Ignore(rule="missing-kernel", reason="all")
    listed = Ignore(rule="missing-kernel", reason="one", fingerprints=(hit().fingerprint,))
    (weighed,), met = Ignores([plain, listed, plain], TODAY).apply([finding(hit())])

    assert (weighed.ignored, [len(each) for each in met]) == ("all", [1, 1, 0])


def entry_findings(**more: object) -> list[tuple[str, str, str]]:
    """Return level, rule and message of the findings about an entry."""
    usual: dict[str, object] = {"expired": False, "used": False, "stage_ran": True, "until": ""}
    use = IgnoreUse(place=PLACE, rule="input-removed", model="m.onnx", **{**usual, **more})  # type: ignore[arg-type]
    prefix = "the `[[ignore]]` entry of `input-removed` for `m.onnx` "
    judged = resolution.apply_rules([use], rules.ALL, {})
    return [(finding.level.value, finding.rule, finding.hit.message.removeprefix(prefix)) for finding in judged]


DONE = [("note", "ignore-unused", "no longer matches a finding")]
MOVED = [("note", "ignore-unused", "applies to a `sha256` that no model has")]
ENDED = [("error", "ignore-expired", "expired on 2027-01-01")]
PAST = {"expired": True, "until": "2027-01-01"}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ({}, [("warning", "ignore-unused", "matches no finding")]),
        ({"used": True}, []),
        ({"stage_ran": False}, []),
        (PAST, ENDED),
        ({**PAST, "used": True}, ENDED),
        ({"sha256": CONTENT}, DONE),
        ({"sha256": CONTENT, "used": True}, []),
        ({"sha256": CONTENT, "stage_ran": False}, []),
        ({"sha256": CONTENT, "content_there": False, "stage_ran": False}, MOVED),
        ({**PAST, "sha256": CONTENT, "content_there": False}, MOVED),
        ({**PAST, "sha256": CONTENT, "used": True}, ENDED),
        ({"listed": 3, "resolved": 3}, DONE),
        ({**PAST, "listed": 3, "resolved": 3}, DONE),
        ({**PAST, "listed": 3, "resolved": 3, "stage_ran": False}, ENDED),
        ({"listed": 3, "resolved": 3, "stage_ran": False}, []),
        ({"listed": 3, "used": True}, []),
        (
            {"listed": 3, "resolved": 1, "used": True},
            [("note", "ignore-unused", "lists 3 findings, of which 1 no longer exists")],
        ),
        ({"listed": 3, "resolved": 1, "used": True, "stage_ran": False}, []),
    ],
)
def test_notes_about_entries(use: dict[str, object], expected: list[tuple[str, str, str]]) -> None:
    """An entry that can no longer hide findings is a note, and only if all stages that could match it ran."""
    assert expected == entry_findings(**use)
