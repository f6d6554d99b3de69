"""The merged report of all shards equals that of an unsharded check; anything incomplete is never a pass."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onnxgate import __version__
from onnxgate.core import report_json
from onnxgate.core.findings import ALL_STAGES, Hit, Level, OnRuntime, Place, RuleHit, Stage
from onnxgate.core.report import Drawing, DrawnNode, Report, ReportedPlace, SharedHit
from onnxgate.gate.request import FileResult, LockResult, StageResults
from onnxgate.gate.sharding import merge
from onnxgate.gate.sharding.merge import merge_reports
from onnxgate.gate.sharding.plan import Division
from onnxgate.gate.sharding.shard_report import ExpectedCheck, ReportFile, collect_reports, decode_report_file
from onnxgate.model.subgraphs import node_context
from onnxgate.project.config.project import Project
from tests.harness.reports.sample_reports import finding
from tests.harness.sharded_outcomes import (
    PATHS,
    chosen_stages,
    division_of,
    divisions,
    gathereds,
    make_project,
    report_of,
    request_of,
    shard_of,
)

ALL = frozenset(ALL_STAGES)
STATIC = frozenset(ALL_STAGES[:3])
NOTHING = ExpectedCheck()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Create one project for all examples; it is never modified."""
    return make_project(tmp_path_factory.mktemp("project"))


def parts_of(project: Project, chosen: frozenset[Stage], gathered: StageResults, division: Division) -> list[Report]:
    """Return the report of each shard that has models."""
    indices = sorted(set(division.shards))
    return [shard_of(project, chosen, gathered, division, index) for index in indices]


def report_files(reports: Sequence[Report]) -> list[ReportFile]:
    """Return the reports as they are read from files."""
    return [
        decode_report_file(f"{number}.json", report_json.format(each).encode()) for number, each in enumerate(reports)
    ]


def merged(each: Sequence[ReportFile], expected: ExpectedCheck = NOTHING) -> Report:
    """Merge the reports as `onnxgate merge` does."""
    return merge_reports(*collect_reports(each, expected), "error")


@settings(max_examples=150, deadline=None)
@examples(chosen_stages, gathereds(), divisions, st.randoms())
def test_all_shards_are_the_whole(project: Project, chosen, gathered, division, random) -> None:  # type: ignore[no-untyped-def]
    """The merged report is byte-identical to the unsharded one, in any order of the shards."""
    whole = report_of(request_of(project, chosen), gathered)
    parts = report_files(parts_of(project, chosen, gathered, division))
    random.shuffle(parts)

    assert report_json.format(whole) == report_json.format(merged(parts))


@settings(max_examples=50, deadline=None)
@examples(gathereds(), divisions, st.data())
def test_missing_shard_is_undecided(project: Project, gathered, division, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    """If a shard is missing or its report is truncated, its models are named as undecided."""
    parts = parts_of(project, STATIC, gathered, division)
    lost = data.draw(st.sampled_from(parts))
    content = report_json.format(lost).encode()
    cut = decode_report_file("cut.json", content[: data.draw(st.integers(0, len(content) - 2))])
    rest = report_files([part for part in parts if part is not lost])
    for number, report in enumerate((merged(rest), merged([*rest, cut]))):
        known = any(finding.level == "error" and not finding.ignored for finding in report.findings)

        assert report.exit == (1 if known else 3)
        assert report.verdict == ("fail" if known else "undecided")
        assert not rest or {m.path for m in lost.models} == {
            entry.model for entry in report.undecided if entry.stage == "gate" and entry.model
        }
        assert number == 0 or "cut.json" in "".join(entry.reason for entry in report.undecided)


FIELDS = [name for name in Report.__struct_fields__ if name not in ("version", "onnxgate", "shard")]


@settings(max_examples=50, deadline=None)
@examples(gathereds(), divisions, st.sampled_from(FIELDS), st.data())
def test_modified_report_is_not_merged(project: Project, gathered, division, name: str, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    """A report with a modified field, even if it is valid JSON, is not merged."""
    parts = parts_of(project, ALL, gathered, division)
    damaged = data.draw(st.sampled_from(parts))
    value = getattr(damaged, name)
    other = {str: "x", int: 7, tuple: (), dict: {}, type(None): None}[type(value)]
    if other == value:
        return
    rest = [part for part in parts if part is not damaged]
    report = merged(report_files([*rest, replace(damaged, **{name: other})]))

    assert report.exit in (1, 3)
    assert any("was not merged" in entry.reason for entry in report.undecided)


@pytest.fixture
def parts(project: Project) -> list[Report]:
    """Return the reports of two shards that pass."""
    return parts_of(project, STATIC, summarize_passing(), division_of((1, 2, 1, 2, 1), 2))


def summarize_passing() -> StageResults:
    """Return results without problems, except for unused ignores."""
    from tests.harness.sharded_outcomes import _facts

    return StageResults(lock=LockResult({path: _facts(path, "1" * 64, ("batch", "time"), "y") for path in PATHS}))


def replace_in(gathered: StageResults, *judged: RuleHit) -> StageResults:
    """Return the results with hits of rules."""
    return replace(gathered, file=FileResult(hits=judged))


def reasons(report: Report) -> str:
    """Return the reasons why the report is undecided."""
    return "\n".join(entry.reason for entry in report.undecided)


def summarize(report: Report) -> list[tuple[str, str]]:
    """Return level and rule of the findings."""
    return [(finding.level, finding.rule) for finding in report.findings]


def test_complete_shards(parts: list[Report]) -> None:
    """Only the merge reports unused and expired ignores, because it knows the models of all shards."""
    whole = merged(report_files(parts))

    assert [[], []] == [summarize(part) for part in parts]
    assert [("warning", "ignore-expired"), ("warning", "ignore-unused")] == summarize(whole)[:2]
    assert len(summarize(whole)) == 4
    assert whole.exit == 0


@pytest.mark.parametrize("path", PATHS)
def test_an_ignore_that_one_shard_uses(project: Project, path: str) -> None:
    """An ignore that is used in any shard is used."""
    hit = Hit(
        Place("onnxgate.lock"),
        "does not run",
        model=path,
        on=OnRuntime("onnxruntime 1.19.2"),
    )
    gathered = replace_in(summarize_passing(), RuleHit("run-failed", Stage.RUNTIME, Level.ERROR, hit))
    report = merged(report_files(parts_of(project, ALL, gathered, division_of((1, 2, 3, 2, 1), 3))))

    assert [("error", "run-failed", "about all")] == [
        (finding.level, finding.rule, finding.ignored) for finding in report.findings if finding.stage == "runtime"
    ]
    assert "run-failed" not in "".join(finding.message for finding in report.findings if finding.stage == "gate")
    assert "lock-stale" in "".join(finding.message for finding in report.findings if finding.stage == "gate")


def test_every_field_is_merged() -> None:
    """Every field of the report is set by the merge; one that is not would be lost."""
    (call,) = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(merge._merge_shards)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Report"
    )

    assert {keyword.arg for keyword in call.keywords} == set(Report.__struct_fields__) - {"shard"}


def test_every_count_is_merged(project: Project) -> None:
    """An unknown count is an error and is not treated as 0."""
    division = division_of((1, 2, 1, 2, 1), 2)
    reports = parts_of(project, ALL, summarize_passing(), division)
    reports = [replace(report, counts={**report.counts, "new": 1}) for report in reports]
    with pytest.raises(KeyError, match="new"):
        merge_reports(reports, (), "error")


def test_the_same_report_twice(parts: list[Report]) -> None:
    """A repeated upload of the same report changes nothing."""
    assert merged(report_files(parts)) == merged(report_files([*parts, parts[0]]))


def test_different_reports_of_one_shard_are_undecided(parts: list[Report]) -> None:
    """If a shard has two different reports, the result is undecided, and errors of both are kept."""
    worse = report_json.seal_report(replace(parts[0], verdict="fail", exit=1, remarks=("another",)))
    report = merged(report_files([*parts, worse]))

    assert "the reports of shard 1 differ: `0.json` and `2.json`" in reasons(report)
    assert report.remarks == ("another",)


def test_shards_of_another_check(project: Project, parts: list[Report]) -> None:
    """A report of a different plan is not merged, and this is reported."""
    other = parts_of(project, STATIC, summarize_passing(), division_of((2, 1, 2, 1, 2), 2))
    report = merged(report_files([*parts, other[0]]))

    assert "`2.json` was not merged: it belongs to another check (shard 1/2, `" in reasons(report)
    assert len(report.models) == len(PATHS)


def test_halves_of_two_checks_are_incomplete(project: Project, parts: list[Report]) -> None:
    """Two halves of different checks contain every model but are not a complete check."""
    other = parts_of(project, ALL, summarize_passing(), division_of((1, 2, 1, 2, 1), 2))
    report = merged(report_files([parts[0], other[1]]))

    assert report.exit == 3
    assert "the report of shard 2/2 is missing" in reasons(report)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty, because its job did not complete"),
        (b"  \n", "it is empty"),
        (b"[]", "it is not an onnxgate report"),
        (b"{}", "it is not an onnxgate report"),
        (b"\xff\xfe", "it is truncated or not JSON"),
        (b'{"version": 1, "onn', "it is truncated or not JSON"),
        (b'{"version": 2, "onnxgate": "9"}', "it has report version 2; this onnxgate version supports 1"),
        (b'{"version": 1, "onnxgate": "9.9"}', f"it was written by onnxgate 9.9, but this is onnxgate {__version__}"),
        (b'{"version": 1, "onnxgate": "%s", "models": 1}' % __version__.encode(), "it is a corrupted onnxgate report"),
        (b"[" * 100_000, "it is not an onnxgate report"),
        (b'{"a":' * 100_000, "it is truncated or not JSON"),
    ],
)
def test_no_report(parts: list[Report], content: bytes, message: str) -> None:
    """The reason why a file was not merged is reported, and its shard is missing."""
    report = merged([*report_files(parts[:1]), decode_report_file("x.json", content)])

    assert report.exit == 3
    assert f"`x.json` was not merged: {message}" in reasons(report)
    assert "the report of shard 2/2 is missing" in reasons(report)


def test_unsharded_report_is_rejected(project: Project, parts: list[Report]) -> None:
    """The report of an unsharded check is not accepted as a shard."""
    whole = report_of(request_of(project, STATIC), summarize_passing())

    assert "it is the report of a check that ran without `--shard`" in reasons(merged(report_files([*parts, whole])))


def resealed(report: Report, **shard: object) -> Report:
    """Return the report with modified shard data and a valid seal."""
    assert report.shard is not None
    return report_json.seal_report(replace(report, shard=replace(report.shard, **shard)))


@pytest.mark.parametrize(
    "forged",
    [
        {"index": 3},
        {"index": 0},
        {"of": 0},
        {"of": 10**6},
        {"division": (1, 1, 1, 1, 1)},
        {"division": (1, 2, 1)},
        {"models": PATHS[::-1]},
        {"index": 2},
    ],
)
def test_shards_that_cannot_be(parts: list[Report], forged: dict[str, object]) -> None:
    """A report must contain exactly the models that its division assigns to its shard."""
    report = merged(report_files([resealed(parts[0], **forged), parts[1]]))

    assert report.exit == 3
    assert "was not merged" in reasons(report)


@pytest.mark.parametrize(
    "forged",
    [
        {"hits": (SharedHit(rule="lock-stale", level="error", stage="::x", message="", place=ReportedPlace(path="")),)},
        {"levels": {"ignore-unused": "\x1b"}},
    ],
)
def test_unknown_values_are_not_merged(parts: list[Report], forged: dict[str, object]) -> None:
    """Reports with unknown stages or levels are not merged and do not cause an error."""
    report = merged(report_files([resealed(part, **forged) for part in parts]))

    assert (report.verdict, report.exit) == ("undecided", 3)
    assert "it contains an unknown stage or level" in reasons(report)


def test_drawings_of_all_shards_are_the_gravest(parts: list[Report]) -> None:
    """The merged report has no more diagrams than an unsharded one; errors come before warnings."""

    def drawn(part: Report, level: str) -> Report:
        model = part.models[0].path
        actual = tuple(finding(model=model, node=f"{n:02}", level=level, fingerprint=f"{n}") for n in range(15))
        boxes = (DrawnNode(name="x", kind="failing"),)
        shown = tuple(Drawing(model=model, node=each.node, nodes=boxes, edges=()) for each in actual)
        return report_json.seal_report(replace(part, findings=actual, drawings=shown))

    first, second = (drawn(part, level) for part, level in zip(parts, ("warning", "error"), strict=True))
    report = merged(report_files([first, second]))
    errors = {(drawing.model, drawing.node) for drawing in second.drawings}

    assert (
        node_context.MAX_DIAGRAMS
        == len(report.drawings)
        == len({(drawing.model, drawing.node) for drawing in report.drawings})
    )
    assert errors < {(drawing.model, drawing.node) for drawing in report.drawings}
    assert list(report.drawings) == sorted(report.drawings, key=lambda each: (each.model, each.node))


def test_contradictory_verdict_is_not_merged(parts: list[Report]) -> None:
    """A report whose verdict contradicts its content is not merged."""
    gap = merged([]).undecided
    report = merged(report_files([report_json.seal_report(replace(parts[0], undecided=gap)), parts[1]]))

    assert "its verdict is `pass`, although it contains undecided checks" in reasons(report)


def test_no_reports_are_undecided() -> None:
    """Without any report the result is undecided, and each expected model is named."""
    nothing, named = merged([]), merged([], ExpectedCheck(models=PATHS))

    assert (nothing.exit, nothing.verdict, len(nothing.undecided)) == (3, "undecided", 1)
    assert list(PATHS) == [entry.model for entry in named.undecided]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (ExpectedCheck(plan="0123456789ab"), "not to `0123456789ab` (`--key`)"),
        (
            ExpectedCheck(config="e" * 64),
            "the shards were checked with a different config than the config in this folder",
        ),
        (ExpectedCheck(lock="e" * 64), "the shards were checked with a different lock than the lock in this folder"),
    ],
)
def test_reports_of_an_earlier_check_are_rejected(parts: list[Report], expected: ExpectedCheck, message: str) -> None:
    """Reports of an earlier check are not accepted for the current state."""
    report = merged(report_files(parts), expected)

    assert report.undecided
    assert message in reasons(report)


def test_the_expected_plan_is_preferred(project: Project, parts: list[Report]) -> None:
    """If reports of two checks are given, those of the plan in `--key` are merged."""
    other = parts_of(project, STATIC, summarize_passing(), division_of((1, 1, 1, 1, 1), 2))
    assert other[0].shard is not None
    report = merged(report_files([*parts, *other]), ExpectedCheck(plan=other[0].shard.plan))

    assert len(report.models) == len(PATHS)
    assert reasons(report).count("belongs to another check") == 2


def test_hostile_strings(parts: list[Report]) -> None:
    """An untrusted name is kept in the report, and escaped by the formats."""
    report = merged([*report_files(parts), decode_report_file("\x1b[31m\n::error::x", b"")])

    assert "\x1b" not in report_json.format(report)
    assert msgspec.json.decode(report_json.format(report), type=Report) == report
