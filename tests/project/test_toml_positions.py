"""Lines of keys in a TOML file."""

from __future__ import annotations

from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.project.toml import find_key_lines, find_nearest_line, format_key_path, loads

TEXT = '''\
# [commented]
models = [
  "a.onnx",  # ] not the end
  "b = 1",
]
text = """
[not.a.table]
key = 1 \\""" still
"""

[targets.server]
runtime = "onnxruntime>=1.18"
sizes = { batch = [1, 3] }
dotted."quoted.key" = 1

[[model]]
path = "x.onnx"

  [[model]]
  path = 'y.onnx'
  [model.tolerance]
  rtol = 1
  [[model.part]]
  [[model.part]]
  name = 1

[ "odd" . 'name' ]
after = 1
'''


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("models",), 2),
        (("text",), 6),
        (("not",), 0),
        (("targets",), 0),
        (("targets", "server"), 11),
        (("targets", "server", "runtime"), 12),
        (("targets", "server", "select"), 11),
        (("targets", "server", "sizes", "batch", "0"), 13),
        (("targets", "server", "dotted", "quoted.key"), 14),
        (("model", "0", "path"), 17),
        (("model", "1"), 19),
        (("model", "1", "path"), 20),
        (("model", "1", "tolerance", "rtol"), 22),
        (("model", "1", "part", "1", "name"), 25),
        (("model", "0", "part"), 16),
        (("odd", "name", "after"), 28),
        ((), 0),
    ],
)
def test_lines(keys: tuple[str, ...], line: int) -> None:
    """Each key is mapped to its line or to that of its nearest parent; strings, comments and arrays do not confuse the
    search.
    """
    loads(TEXT)

    assert line == find_nearest_line(find_key_lines(TEXT), keys)


keys = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
leaves = st.integers(-9, 9) | st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.booleans()
tables: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(keys, leaves | st.lists(leaves, max_size=3), max_size=3),
    lambda inner: st.dictionaries(keys, inner | st.lists(inner, min_size=1, max_size=2) | leaves, max_size=3),
    max_leaves=12,
)


@given(tables, st.booleans())
def test_key_is_found_like_the_parser(table: dict[str, Any], multiline: bool) -> None:
    """The parser finds a top-level key only in text that includes the reported line."""
    text = tomli_w.dumps(table, multiline_strings=multiline)
    key_lines = find_key_lines(text)
    lines = text.split("\n")
    starts = [*sorted({line for keys, line in key_lines.items() if len(keys) == 1}), len(lines) + 1]

    for key in table:
        if (key,) in key_lines:
            line = key_lines[(key,)]
            end = next(each for each in starts if each > line)
            assert key not in loads("\n".join(lines[: line - 1]))
            assert key in loads("\n".join(lines[: end - 1]))
        else:
            assert any(keys[0] == key for keys in key_lines) or table[key] in ({}, [])


@given(st.text())
def test_any_text(text: str) -> None:
    """Invalid TOML never raises an error; the lines of the keys before the problem are returned."""
    key_lines = find_key_lines(text)

    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines.values())


def test_keys_before_an_invalid_one() -> None:
    """The search stops at a quoted key that is not a valid TOML string, so that the syntax error can be reported."""
    key_lines = find_key_lines('[a]\nb = 1\n"\\q" = 1\nc = 2\n')

    assert dict(key_lines) == {("a",): 1, ("a", "b"): 2}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("targets", "server", "select"), "targets.server.select"),
        (("model", "0", "path"), "model[0].path"),
        (("opset", "ai.onnx"), 'opset."ai.onnx"'),
    ],
)
def test_key_path(keys: tuple[str, ...], expected: str) -> None:
    """Key paths are rendered as in messages."""

    assert expected == format_key_path(keys)
