"""Reports in which every string is an injection attempt."""

from __future__ import annotations

from hypothesis import strategies as st

from onnxgate.core.report import (
    Against,
    Cell,
    Change,
    Drawing,
    DrawnEdge,
    DrawnNode,
    Finding,
    Measured,
    NotDone,
    Report,
    ReportedCheckout,
    ReportedModel,
    ReportedPlace,
    ReportedRuntime,
)

ATTACKS = (
    "::error::",
    "::error file=a,line=1::",
    "::stop-commands::x",
    "::add-mask::x",
    "##[error]",
    "##[group]",
    "###[warning]",
    "##",
    "[error]x",
    "%0A::error::",
    "%25",
    "\n::error::",
    "\r::error::",
    "\r\n  ::error::",
    "\x0b::error::",
    "\x85::error::",
    "\u2028::error::",
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\ufeff",
    "`",
    "``",
    "|",
    "\\|",
    "\\",
    "<script>",
    "</code>",
    "&#64;user",
    "@user",
    "#12",
    "https://example.com",
    "www.example.com",
    "![x](https://example.com)",
    "**b**",
    "\n\n# heading\n",
    ",line=9",
    "::",
    " ",
    "\udc80",
    "模型",
)
TEXT = st.lists(st.sampled_from(ATTACKS) | st.text(max_size=4), max_size=4).map("".join)
NAME = TEXT.filter(bool)
PATH = TEXT.map(lambda text: f"models/{text}.onnx")
RUNTIME = st.sampled_from([f"onnxruntime 1.{minor}.1" for minor in range(18, 24)]) | NAME


def _tuple_of(strategy: st.SearchStrategy, size: int = 3) -> st.SearchStrategy:  # type: ignore[type-arg]
    return st.lists(strategy, max_size=size).map(tuple)


PLACES = st.builds(
    ReportedPlace,
    path=TEXT,
    line=st.integers(min_value=0, max_value=9),
    end_line=st.integers(min_value=0, max_value=12),
)
FINDINGS = st.builds(
    Finding,
    rule=NAME | st.sampled_from(["load-failed", "policy-weakened"]),
    level=st.sampled_from(["error", "warning", "note"]),
    stage=TEXT,
    message=TEXT,
    fix=TEXT,
    model=TEXT,
    node=TEXT,
    runtimes=_tuple_of(RUNTIME),
    place=PLACES,
    works_since=TEXT,
    works_until=TEXT,
    confirmed=st.booleans(),
    fingerprint=TEXT,
    ignored=st.just("") | TEXT,
    newly_ignored=st.booleans(),
)
NOT_DONE = st.builds(NotDone, stage=NAME, model=TEXT, runtime=st.just("") | RUNTIME, reason=TEXT, hint=TEXT)
FIGURES = st.builds(
    Measured,
    model=PATH,
    output=TEXT,
    pair=TEXT,
    case=TEXT,
    metric=TEXT,
    value=st.none() | st.floats(min_value=0, allow_infinity=False),
    bound=st.floats(min_value=0, allow_infinity=False),
    bound_from=TEXT,
)
STATES = st.sampled_from(
    ["pass", "warning", "fail", "predicted", "not predicted", "undecided", "skipped", "not selected"]
)
CELLS = st.builds(Cell, model=PATH, runtime=RUNTIME, state=STATES, compared=st.booleans())
RUNTIMES = st.builds(
    ReportedRuntime,
    target=TEXT,
    engine=st.just("onnxruntime") | NAME,
    version=st.sampled_from([f"1.{minor}.1" for minor in range(18, 24)]) | NAME,
    python=TEXT,
    providers=_tuple_of(TEXT, 1),
)
CHANGES = st.builds(
    Change,
    model=TEXT,
    kind=st.sampled_from(["added", "removed", "renamed", "changed"]),
    before=TEXT,
    differences=_tuple_of(TEXT),
)
DRAWINGS = st.builds(
    Drawing,
    model=TEXT,
    node=TEXT,
    nodes=st.lists(
        st.builds(
            DrawnNode,
            name=TEXT,
            operator=TEXT,
            kind=st.sampled_from(["node", "failing", "input", "output", "weight", "more"]),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    edges=_tuple_of(st.just(DrawnEdge(source=0, target=0, value="x")), 1),
)
REPORTS = st.builds(
    Report,
    onnxgate=TEXT,
    verdict=st.sampled_from(["pass", "fail", "undecided"]),
    exit=st.sampled_from([0, 1, 3]),
    folder=TEXT,
    scope=TEXT,
    stages=_tuple_of(TEXT),
    models=_tuple_of(st.builds(ReportedModel, path=PATH, sha256=TEXT)),
    runtimes=_tuple_of(RUNTIMES),
    cells=_tuple_of(CELLS),
    findings=_tuple_of(FINDINGS),
    undecided=_tuple_of(NOT_DONE, 2),
    skipped=_tuple_of(NOT_DONE, 2),
    measured=_tuple_of(FIGURES, 2),
    remarks=_tuple_of(TEXT, 2),
    against=st.none() | st.builds(Against, name=TEXT, commit=TEXT),
    changes=_tuple_of(CHANGES, 2),
    drawings=_tuple_of(DRAWINGS, 1),
    counts=st.dictionaries(TEXT, st.integers(), max_size=1),
    checkout=st.none() | st.builds(ReportedCheckout, repository=TEXT, commit=TEXT),
    fail_on=st.sampled_from(["error", "warning", "never"]),
)
