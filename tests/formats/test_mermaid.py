"""Mermaid diagrams: node shapes, and names that are never interpreted by Mermaid."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.report import Drawing, DrawnEdge, DrawnNode
from onnxgate.formats.markdown import mermaid
from tests.harness.reports.hostile_reports import ATTACKS, TEXT
from tests.harness.reports.sample_reports import sample

OF_MERMAID = (
    '"]; click n0 "javascript:alert(1)"',
    "%%{init: {'securityLevel': 'loose'}}%%",
    "click n0 href",
    "`**bold**`",
    "```\n<b>outside</b>",
    "--- title",
    "$$x^2$$",
    "fa:fa-car",
    "1. one",
    "- one",
    "style n0 fill:#000;",
    "ﬂ°°60¶ßimg src=x onerror=alert(1)ﬂ°°62¶ß",
    "&lt;b&gt;",
    "end",
    "__init__",
)
LINE = re.compile(
    r"""flowchart\ TB
    | \ \ n\d+ (?:\[/"L"/\] | \[\\"L"\\\] | \[\("L"\)\] | \("L"\) | \["L"\])
    | \ \ n\d+\ -->\ n\d+
    | \ \ classDef\ (?:failing|more)\ [a-z0-9#:,\ -]+
    | \ \ class\ n\d+(?:,n\d+)*\ (?:failing|more)""".replace('"L"', '"(?:[A-Za-z0-9/ ]|\\#[0-9]+;)+"'),
    re.VERBOSE,
)
NODES = st.builds(
    DrawnNode,
    name=TEXT | st.sampled_from(OF_MERMAID),
    operator=TEXT | st.sampled_from(OF_MERMAID),
    kind=st.sampled_from(["node", "failing", "input", "output", "weight", "more"]),
)
NUMBERS = st.integers(min_value=-2, max_value=70)
EDGES = st.builds(DrawnEdge, source=NUMBERS, target=NUMBERS, value=TEXT)
DRAWINGS = st.builds(
    Drawing,
    model=TEXT,
    node=TEXT,
    nodes=st.lists(NODES, max_size=60).map(tuple),
    edges=st.lists(EDGES, max_size=10).map(tuple),
)


def test_the_sample() -> None:
    """Each kind of node has its own shape, and the failing node has its own style."""
    (drawn,) = sample().drawings

    assert [
        "```mermaid",
        "flowchart TB",
        '  n0[/"x"/]',
        '  n1[("weight#124;1")]',
        '  n2["Conv #183; /head/Reshape"]',
        '  n3["Relu #183; relu"]',
        '  n4("3 more")',
        "  n0 --> n2",
        "  n1 --> n2",
        "  n2 --> n3",
        "  n3 --> n4",
        "  classDef failing fill:#ffebe9,stroke:#cf222e,stroke-width:3px,color:#82071e",
        "  class n2 failing",
        "  classDef more fill:none,stroke:#8c959f,stroke-dasharray:4 3",
        "  class n4 more",
        "```",
    ] == mermaid.render_mermaid(drawn).split("\n")


@given(DRAWINGS)
def test_every_line_has_an_expected_form(drawn: Drawing) -> None:
    """Whatever the names are, every line has an expected form, and edges only refer to existing nodes."""
    first, *lines, last = mermaid.render_mermaid(drawn).split("\n")
    boxes = {match[1] for line in lines if (match := re.match(r"  (n\d+)[\[(]", line))}
    ends = {end for line in lines if " --> " in line for end in line.split(" --> ")}

    assert ("```mermaid", "```") == (first, last)
    assert [] == [line for line in lines if not LINE.fullmatch(line)]
    assert {end.strip() for end in ends} <= boxes
    assert len(boxes) == min(len(drawn.nodes), mermaid.MAX_BOXES)


@pytest.mark.parametrize("attack", [*ATTACKS, *OF_MERMAID])
def test_a_label_shows_the_visible_name(attack: str) -> None:
    """The decoded label equals the name that other formats show."""
    from onnxgate.core.escape import escape_mermaid_label, escape_unprintable

    shown = re.sub(r"#([0-9]+);", lambda match: chr(int(match[1])), escape_mermaid_label(attack))

    assert " ".join(escape_unprintable(attack).split()) == shown


def test_no_label_is_empty() -> None:
    """Mermaid rejects empty labels, so an empty or blank name is shown as `unnamed`."""
    nodes = tuple(DrawnNode(name=name) for name in ("", " ", "  "))

    output = mermaid.render_mermaid(Drawing(model="m.onnx", node="bad", nodes=nodes, edges=()))

    assert output.count('["unnamed"]') == 3


def test_truncated_diagram_contains_the_failing_node() -> None:
    """A diagram with too many nodes is truncated, but always contains the failing node."""
    nodes = (*(DrawnNode(name=f"node{index}") for index in range(80)), DrawnNode(name="bad", kind="failing"))

    output = mermaid.render_mermaid(Drawing(model="m.onnx", node="bad", nodes=nodes, edges=()))

    assert output.count('["') == mermaid.MAX_BOXES
    assert 'n80["bad"]' in output
