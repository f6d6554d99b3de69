"""The report as JUnit XML: a suite for each model, a test for each runtime and for each stage that needs none.

What closes the gate is a failure, what could not be done an error, what need not be done is skipped. There is no clock
in a report: every time is 0, which some readers want to see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from onnxgate.formats import phrases
from onnxgate.formats.escape import neutral, visible
from onnxgate.formats.junit_cases import Case, cases_of_models, cases_of_project
from onnxgate.report import Report

PROJECT = "onnxgate"
"""The suite of what is about no model."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A model, or the project, with its tests."""

    name: str
    cases: Sequence[Case]

    def count(self, outcome: str) -> int:
        """How many of them ended so."""
        return sum(case.outcome == outcome for case in self.cases)


def format(report: Report) -> str:
    """An XML document with a newline at its end."""
    suites = [Suite(name, cases) for name, cases in cases_of_models(report) if cases]
    project = cases_of_project(report)
    suites += [Suite(PROJECT, project)] if project else []
    root = ElementTree.Element("testsuites", {"name": "onnxgate", "time": "0", **_totals(suites, skipped=False)})
    for suite in suites:
        _suite(root, suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', *(neutral(line) for line in text.split("\n")), ""]
    return "\n".join(lines)


def _totals(every: Sequence[Suite], *, skipped: bool) -> dict[str, str]:
    counts = {
        "tests": sum(len(suite.cases) for suite in every),
        "failures": sum(suite.count("failure") for suite in every),
        "errors": sum(suite.count("error") for suite in every),
    }
    counts |= {"skipped": sum(suite.count("skipped") for suite in every)} if skipped else {}
    return {name: str(number) for name, number in counts.items()}


def _suite(root: ElementTree.Element, suite: Suite) -> None:
    name = visible(phrases.short(suite.name))
    element = ElementTree.SubElement(root, "testsuite", {"name": name, "time": "0", **_totals([suite], skipped=True)})
    for case in suite.cases:
        _case(element, name, case)


def _case(suite: ElementTree.Element, classname: str, case: Case) -> None:
    name = visible(phrases.short(case.name))
    element = ElementTree.SubElement(suite, "testcase", {"classname": classname, "name": name, "time": "0"})
    if case.outcome:
        said = list(_lines(case.said))
        shown = ElementTree.SubElement(element, case.outcome, {"message": said[0] if said else case.outcome})
        if case.outcome != "skipped":
            shown.attrib["type"] = visible(phrases.short(case.type)) or case.outcome
        shown.text = "\n".join(said)
    if case.aside:
        ElementTree.SubElement(element, "system-out").text = "\n".join(_lines(case.aside))


def _lines(said: Iterable[str]) -> Iterator[str]:
    """XML holds no control characters, and a log that shows them may hold no commands."""
    return (neutral(visible(line)) for line in said)
