"""All formats agree on a report: the number of findings per level, including omitted ones, and every remark."""

from __future__ import annotations

import json as standard_json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onnxgate.core import report_json
from onnxgate.core.report import Against, Cell, NotDone, Report, ReportedCheckout, ReportedModel, ReportedPlace
from onnxgate.formats import github, gitlab, html, junit, markdown, sarif, text, wording
from onnxgate.formats.markdown.pull_request_comment import format_comment
from onnxgate.gate.results.verdict import decide_verdict
from tests.harness.github import workflow_commands
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, sample

Tally = Counter[str]
LEVELS = wording.LEVELS
RULES = ("load-failed", "missing-kernel", "size-grew")
MODELS = tuple(f"models/m{number}.onnx" for number in range(4))
BODY = "found something in its `graph`"
FINDINGS = st.builds(
    finding,
    message=st.sampled_from((BODY, f"{BODY}, on onnxruntime 1.18.1")),
    rule=st.sampled_from(RULES),
    level=st.sampled_from(LEVELS),
    stage=st.sampled_from(("file", "lock", "runtime")),
    model=st.sampled_from(("", *MODELS)),
    fix=st.sampled_from(("", "do it again")),
    node=st.sampled_from(("", "node_1")),
    runtimes=st.lists(st.sampled_from([f"onnxruntime {minor}" for minor in MINORS]), unique=True, max_size=3).map(
        tuple
    ),
    place=st.builds(ReportedPlace, path=st.sampled_from(("onnxgate.lock", *MODELS)), line=st.integers(0, 3)),
    fingerprint=st.text("0123456789abcdef", min_size=16, max_size=16),
    ignored=st.sampled_from(("", "", "", "known")),
)
UNDONE = st.builds(
    NotDone,
    stage=st.sampled_from(("runtime", "parity")),
    model=st.sampled_from(MODELS),
    runtime=st.sampled_from(("", "onnxruntime 1.18.1")),
    reason=st.sampled_from(("no interpreter was found", "it took too long")),
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Generate a report whose verdict follows from its findings and incomplete checks."""
    findings = tuple(draw(st.lists(FINDINGS, max_size=60)))
    undecided = tuple(draw(st.lists(UNDONE, max_size=3, unique=True)))
    verdict, status = decide_verdict(findings, bool(undecided), draw(st.sampled_from(("error", "warning"))))
    return report(
        models=tuple(ReportedModel(path=path, sha256="0" * 64) for path in MODELS),
        cells=tuple(Cell(model=path, runtime=f"onnxruntime {MINORS[0]}", state="pass") for path in MODELS),
        findings=findings,
        undecided=undecided,
        verdict=verdict,
        exit=status,
    )


def in_report(judged: Report) -> Tally:
    """Count the findings that are not ignored."""
    return Counter(finding.level for finding in judged.findings if not finding.ignored)


def in_json(judged: Report) -> Tally:
    """Count the findings in the JSON report."""
    findings = standard_json.loads(report_json.format(judged))["findings"]
    return Counter(finding["level"] for finding in findings if not finding["ignored"])


def in_text(judged: Report) -> Tally:
    """Count the findings listed in the text report."""
    return Counter(re.findall(r"^  (error|warning|note) +\S+  \S+$", text.format(judged), flags=re.MULTILINE))


def in_last_line(judged: Report) -> Tally:
    """Count the findings in the last line of the text report."""
    output = re.findall(r"(\d+) (error|warning|note)s?\b", text.render_verdict(judged))
    return Counter({level: int(number) for number, level in output})


def in_annotations(judged: Report) -> Tally:
    """Count the annotations, including those that are only summarized in a count."""
    tally: Tally = Counter()
    for annotation in workflow_commands.annotations(github.format(judged)):
        level = "note" if annotation.name == "notice" else annotation.name
        more = re.match(r"(\d+) more ", annotation.data)
        tally[level] += int(more[1]) if more else 1
    incomplete = "error" if judged.exit == 3 else "warning"
    tally[incomplete] -= len(wording.merge_gaps(judged.undecided))
    return tally


def in_sarif(judged: Report) -> Tally:
    """Count the findings in SARIF; several findings on one line are a single result."""
    tally: Tally = Counter()
    for result in standard_json.loads(sarif.format(judged))["runs"][0]["results"]:
        lines = result["message"]["text"].split("\n")
        more = sum(
            int(found[1])
            for found in (re.match(r"… and (\d+) more `[^`]+` findings?; ", line) for line in lines)
            if found
        )
        tally[result["level"]] += sum(BODY in line for line in lines) + more
    return tally


def in_gitlab(judged: Report) -> Tally:
    """Count the issues in the GitLab report."""
    levels = {severity: level for level, severity in gitlab.SEVERITIES.items()}
    issues = standard_json.loads(gitlab.format(judged))
    return Counter(levels[issue["severity"]] for issue in issues if issue["check_name"] != "undecided")


def in_page(page: Callable[[Report], str]) -> Callable[[Report], Tally]:
    """Return a function that counts the findings in a Markdown page."""
    marks = {"❌": "error", "⚠️": "warning", "ℹ️": "note"}

    def counted(judged: Report) -> Tally:
        return Counter(marks[mark] for mark in re.findall(r"^- (\S+) \*\*\[?`", page(judged), flags=re.MULTILINE))

    return counted


def in_html(judged: Report) -> Tally:
    """Count the findings in the HTML page."""
    return Counter(re.findall(r'<article [^>]*class="finding (\w+)', html.format(judged)))


EVERY: dict[str, Callable[[Report], Tally]] = {
    "json": in_json,
    "text": in_text,
    "last line": in_last_line,
    "annotations": in_annotations,
    "sarif": in_sarif,
    "gitlab": in_gitlab,
    "summary": in_page(markdown.format_summary),
    "markdown": in_page(markdown.format),
    "html": in_html,
}


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(judged=reports())
def test_as_many_findings_of_each_level(name: str, judged: Report) -> None:
    """No format omits a finding, repeats it, or changes its level."""
    assert +EVERY[name](judged) == in_report(judged)


@pytest.mark.parametrize("name", EVERY)
def test_many_on_one_line(name: str) -> None:
    """Findings beyond the annotation limit, and those merged into one SARIF result, are included in the counts."""
    many = tuple(finding(BODY, level=level, fingerprint=f"{n:016x}") for level in LEVELS for n in range(45))
    judged = report(findings=many, verdict="fail", exit=1)

    assert +EVERY[name](judged) == dict.fromkeys(LEVELS, 45)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(judged=reports())
def test_comment_counts_omitted_findings(judged: Report) -> None:
    """The findings that a comment shows and those that it counts add up to all findings; notes are only counted."""
    page = format_comment(judged)
    shown = in_page(format_comment)(judged)
    more = re.findall(
        r"^… and (?:(\d+) more findings?)?(?: and )?(?:(\d+) notes?)? in the job", page, flags=re.MULTILINE
    )
    counted = sum(int(each or 0) for each, _ in more)
    notes = sum(map(int, re.findall(r"^- ℹ️ \*\*(\d+) notes?:\*\* ", page, flags=re.MULTILINE)))
    wanted = in_report(judged)

    assert len(more) <= 1
    assert shown["error"] + shown["warning"] + counted == wanted["error"] + wanted["warning"]
    assert (shown["note"], notes) == (0, wanted["note"])
    assert {int(each or 0) for _, each in more} <= {wanted["note"]}


def test_findings_that_do_not_fit_are_counted_once() -> None:
    """If long findings are dropped at several places, a single line reports their total number, and no heading is left
    empty.
    """
    long = tuple(
        finding(f"{BODY} {'x' * 480}", model=f"{number}{'m' * 290}", fix="y" * 480, rule=RULES[number % 3])
        for number in range(300)
    )
    judged = report(findings=long, verdict="fail", exit=1)

    for rendered in (markdown.format_summary(judged), format_comment(judged)):
        shown = rendered.count(BODY)
        more = re.findall(r"… and (\d+) more\b", rendered)
        assert 0 < shown < 300
        assert [int(each) for each in more] == [300 - shown]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
@given(judged=reports())
def test_junit_fails_if_the_check_fails(judged: Report) -> None:
    """A failed check has a failure, an undecided one has an error or a failure, and a passed one has neither."""
    root = ElementTree.fromstring(junit.format(judged))
    failures, errors = (int(root.attrib[name]) for name in ("failures", "errors"))

    assert (failures > 0) == (judged.verdict == "fail")
    assert (failures + errors > 0) == (judged.verdict != "pass")


REMARK = "no baseline: `origin/main` was not fetched; models are not compared"
SAYING: dict[str, Callable[[Report], str]] = {
    "text": text.format,
    "json": report_json.format,
    "annotations": github.format,
    "sarif": sarif.format,
    "junit": junit.format,
    "summary": markdown.format_summary,
    "markdown": markdown.format,
    "comment": format_comment,
    "html": html.format,
}


@pytest.mark.parametrize("name", SAYING)
def test_remarks_are_in_every_format(name: str) -> None:
    """A remark is in every format, because it can limit the meaning of a pass."""
    actual = re.sub(r"</?code>|`", "", SAYING[name](report(remarks=(REMARK,))))

    assert REMARK.replace("`", "") in actual


def test_the_sample() -> None:
    """All formats agree on the sample report, whose messages contain no markers for counting."""
    names = EVERY.keys() - {"sarif"}

    assert {name: +EVERY[name](sample()) for name in names} == dict.fromkeys(names, in_report(sample()))


WEAKENED = finding("target `a` was removed", rule="policy-weakened", level="warning", stage="gate", model="")
FIRST_LINES: dict[str, tuple[Callable[[Report], str], str]] = {
    "text": (text.render_verdict, "pass (policy weakened): 1 model on 5 runtimes: 2 warnings"),
    "annotations": (lambda it: github.format(it).splitlines()[-1], "pass (policy weakened): "),
    "summary": (markdown.format_summary, "## ✅ onnxgate: pass — ⚠️ policy weakened by 2 changes\n"),
    "comment": (format_comment, "## ✅ onnxgate: pass — ⚠️ policy weakened by 2 changes\n"),
    "markdown": (markdown.format, "# ✅ onnxgate: pass — ⚠️ policy weakened by 2 changes\n"),
    "html": (
        lambda it: re.sub(r"<[^>]*>", "", re.findall(r"<h1>.*</h1>", html.format(it))[0]),
        "✓Pass! policy weakened by 2 changes",
    ),
    "title": (lambda it: re.findall(r"<title>(.*)</title>", html.format(it))[0], "Pass (policy weakened): 1 model"),
    "sarif": (
        lambda it: standard_json.loads(sarif.format(it))["runs"][0]["invocations"][0]["exitCodeDescription"],
        "pass (policy weakened): ",
    ),
}


@pytest.mark.parametrize("name", FIRST_LINES)
def test_a_weakened_policy_is_in_the_first_line(name: str) -> None:
    """A check that passes because less is required does not look like any other pass."""
    render, expected = FIRST_LINES[name]
    weakened = report(findings=(WEAKENED, replace(WEAKENED, fingerprint="b")))
    accepted = report(findings=(replace(WEAKENED, ignored="agreed"),))

    assert render(weakened).startswith(expected)
    assert "weakened" not in render(report()) + render(accepted).split("\n")[0]


SCOPES: dict[str, Callable[[Report], str]] = {
    "text": lambda it: text.format(it).splitlines()[-1],
    "summary": lambda it: markdown.format_summary(it).partition("\n### ")[0],
    "comment": lambda it: format_comment(it).partition("\n### ")[0],
    "html": lambda it: html.format(it).partition("</header>")[0],
}


@pytest.mark.parametrize("name", SCOPES)
def test_what_the_options_leave_out_is_at_the_top(name: str) -> None:
    """A reader who sees only the top knows which stages did not run, and that findings do not matter."""
    limited = SCOPES[name](report(scope="skipped stages: parity", fail_on="never", findings=(finding(),)))

    assert "skipped stages: parity; findings do not fail the check" in limited
    assert "--fail-on never" in limited
    assert "Limited check" not in SCOPES[name](report())


@pytest.mark.parametrize("name", SCOPES)
def test_why_warnings_fail_the_check(name: str) -> None:
    """A failure without any error is explained, and is not a limit of the check."""
    warned = report(verdict="fail", exit=1, fail_on="warning", findings=(finding(level="warning"),))
    broken = replace(warned, findings=(finding(), *warned.findings))
    shown = SCOPES[name](warned)

    assert "arnings fail the check (" in shown
    assert "Limited check" not in shown
    assert "arnings fail the check" not in SCOPES[name](broken)


@pytest.mark.parametrize("page", [markdown.format_summary, format_comment, html.format])
def test_the_repository_commit_base_and_project_are_named(page: Callable[[Report], str]) -> None:
    """In a repository with several projects, several reports belong to one pull request."""
    checkout = ReportedCheckout(repository="example/models", commit="8c1d9f2" + "0" * 33)
    against = Against(name="origin/main", commit="1a2b3c4" + "0" * 33)
    head = page(report(folder="ml/vision", checkout=checkout, against=against)).partition("<main")[0]
    alone = page(report(checkout=checkout))

    assert [it for it in ("example/models", "ml/vision", "8c1d9f2", "origin/main (1a2b3c4)") if it not in head] == []
    assert re.search(r"baseline(?:</dt><dd>| `)none\b", alone)


@pytest.mark.parametrize("page", [markdown.format_summary, format_comment, html.format])
def test_a_missing_baseline_is_not_called_none(page: Callable[[Report], str]) -> None:
    """`none` would mean that no baseline was requested."""
    checkout = ReportedCheckout(repository="example/models", commit="8c1d9f2" + "0" * 33)
    gap = NotDone(stage="lock", model="", runtime="", reason="the baseline is not available", hint="")
    head = page(report(verdict="undecided", exit=3, checkout=checkout, undecided=(gap,))).partition("<main")[0]

    assert re.search(r"baseline(?:</dt><dd>| `)not available\b", head)


@pytest.mark.parametrize("page", [markdown.format_summary, markdown.format, html.format])
def test_the_worst_findings_come_first_and_the_table_last(page: Callable[[Report], str]) -> None:
    """The findings explain the failing rows of the table. All errors precede the warnings of any model."""
    texts = {"error": ("b.onnx", "is broken"), "warning": ("a.onnx", "is odd"), "note": ("a.onnx", "is new")}
    findings = tuple(finding(said, level=level, model=model) for level, (model, said) in texts.items())
    body = page(report(verdict="fail", exit=1, findings=findings)).rpartition("<main")[2]
    places = [body.index(said) for said in ("is broken", "is odd", "is new")] + [body.rindex("1.22")]

    assert places == sorted(places)


@pytest.mark.parametrize("page", [markdown.format_summary, format_comment, html.format])
def test_an_undecided_verdict_is_explained_before_the_findings(page: Callable[[Report], str]) -> None:
    """The reason why the check is undecided is the answer, not the warnings."""
    gaps = not_done(reason="no interpreter was found")
    rendered = page(report(verdict="undecided", exit=3, undecided=gaps, findings=(finding("is odd", level="warning"),)))

    assert rendered.index("no interpreter was found") < rendered.index("is odd")
    assert rendered.index("1 undecided") < rendered.index("1 warning")


@pytest.mark.parametrize("format_", [junit.format, sarif.format])
def test_new_ignores_are_marked_in_data(format_: Callable[[Report], str]) -> None:
    """Formats for other tools distinguish new ignores, too."""
    ignored = finding(ignored="because")

    assert "newly ignored: because" in format_(report(findings=(replace(ignored, newly_ignored=True),)))
    assert "newly ignored" not in format_(report(findings=(ignored,)))


@pytest.mark.parametrize("page", [text.format, markdown.format_summary, format_comment, html.format])
def test_new_ignores_are_marked(page: Callable[[Report], str]) -> None:
    """Accepting a finding in the pull request that causes it is visible; earlier ignores are collapsed."""
    old = finding("is old", ignored="agreed", fingerprint="a")
    new = finding("is fresh", ignored="because", newly_ignored=True, fingerprint="b")
    rendered = " ".join(re.sub(r"<[^>]*>|\*", " ", page(report(findings=(old, new)))).split())

    assert "(1 new)" in rendered
    assert rendered.index("because") < rendered.index("agreed")
    assert len(re.findall(r"\bnew ?:? (?:error )?\[?`?load-failed", rendered)) == 1


def test_marks_cannot_be_confused() -> None:
    """No mark has two meanings, and none differs from another only in its style."""
    marks = [*markdown.VERDICT_MARKS.values(), *markdown.LEVEL_MARKS.values()]
    marks += [markdown.IGNORED_MARK, markdown.SKIPPED_MARK]
    names = {unicodedata.name(mark[0]).replace("WHITE ", "").replace("BLACK ", "") for mark in marks}

    assert len(names) == len(marks) - 1  # an error and a failed check share one


@pytest.mark.parametrize("page", [markdown.format_summary, format_comment, markdown.format, html.format])
def test_rules_link_to_their_pages(page: Callable[[Report], str]) -> None:
    """A reader who does not know a rule finds its page; text that cannot be a rule is not a link."""
    known, unknown = (page(report(findings=(finding(rule=rule),))) for rule in ("load-failed", "x](https://evil)"))

    assert "https://github.com/onnxgate/onnxgate/blob/main/docs/rules/load-failed.md" in known
    assert "docs/rules" not in unknown
