"""Formatting of words, lists, numbers and spelling suggestions for messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHORT_LIMIT = 300
"""Maximum length of a name from a model or a runtime in text output; JSON output contains the full name."""
LONG_LIMIT = 4000
"""Maximum length of a message in text output."""
SIZE_UNITS = ("B", "KiB", "MiB", "GiB")
_PORTABLE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 =_.,:/'+[]-")
"""Characters to which no common shell gives a meaning in double quotes."""


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 model` or `2 models`; `plural` is for irregular nouns."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def truncate(text: str, limit: int = SHORT_LIMIT) -> str:
    """Return the text. If it is longer than `limit`, return only its beginning and state its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def join_command(words: Sequence[str], *paths: str, options: Sequence[str] = ()) -> str:
    """Return a command that can be pasted into a shell.

    If a path looks like an option, the paths come last, after `--`. Otherwise, they come before `options`.
    """
    is_option_like = any(path.startswith("-") for path in paths)
    command = [*words, *options, "--", *paths] if is_option_like else [*words, *paths, *options]
    return " ".join(map(_quote_word, command))


def quote_path(path: str) -> str:
    """Return a path as the end of a command: quoted for a shell, and after `--` if it looks like an option."""
    return join_command((), path)


def quote_value(value: str) -> str:
    """Return the value of an option, in double quotes if that is safe in a shell."""
    plain = value.replace(" ", "").replace("*", "")
    return f'"{value}"' if _quote_word(plain) == plain or not plain else _quote_word(value)


def _quote_word(word: str) -> str:
    """Quote a word so that it works in all common shells; if that is impossible, quote it for POSIX shells.

    Output escapes control characters, so they are quoted as in `$'a\\nb'`.
    """
    import shlex  # only for hints

    if word.isprintable():
        return f'"{word}"' if " " in word and _PORTABLE.issuperset(word) else shlex.quote(word)
    escaped = (
        char.replace("\\", "\\\\").replace("'", "\\'") if char.isprintable() else char.encode("unicode_escape").decode()
        for char in word
    )
    return f"$'{''.join(escaped)}'"


def first_line(text: str) -> str:
    """Return the first line of the text that is not blank."""
    return text.strip().partition("\n")[0]


def join_phrases(phrases: Sequence[str], most: int = 0) -> str:
    """Join phrases, as in `a, b and c`. A long list is shortened to `most` phrases, as in `a, b and 3 more`."""
    if most and len(phrases) > most + 1:
        phrases = [*phrases[:most], f"{len(phrases) - most:,} more"]
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def format_size(size_bytes: int) -> str:
    """Return a size with its unit, such as `512 B` or `12.3 MiB`."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(SIZE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {SIZE_UNITS[unit]}" if unit else f"{size_bytes} B"


def suggest_spelling(word: str, candidates: Iterable[str]) -> str:
    """Return a suggestion such as "; did you mean `minors`?"; "" if no candidate is similar."""
    nearest = find_similar(word, candidates)
    return f"; did you mean `{nearest}`?" if nearest else ""


def find_similar(word: str, candidates: Iterable[str]) -> str:
    """Return the candidate that was probably meant by the word; "" if no candidate is similar enough.

    Names with different digits, such as `resnet18.onnx` and `resnet50.onnx`, are different names.
    """
    import difflib

    spelled = _normalize_spelling(word)
    by_normalized = {_normalize_spelling(candidate): candidate for candidate in candidates}
    for near in difflib.get_close_matches(spelled, by_normalized, n=3, cutoff=_MIN_SIMILARITY):
        if _digits(spelled) != _digits(near):
            continue
        pairs = ((spelled, near), (_file_stem(spelled), _file_stem(near)))
        if all(_is_similar(difflib.SequenceMatcher(None, *pair).ratio(), *pair) for pair in pairs):
            return by_normalized[near]
    return ""


_MIN_SIMILARITY = 0.65
_MIN_SHORT_SIMILARITY = 0.75
"""Minimum similarity for names of up to 3 characters. With this value, `cn` is similar to `cnn`, but `rnn` is not."""


def _is_similar(ratio: float, *names: str) -> bool:
    return ratio >= (_MIN_SHORT_SIMILARITY if min(map(len, names)) <= 3 else _MIN_SIMILARITY)


def _file_stem(name: str) -> str:
    """Return a file name without its folder and extension, which many files share. Other names are unchanged."""
    name = name.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _normalize_spelling(name: str) -> str:
    return name.lower().replace("_", "-")


def join_quoted(words: Iterable[str]) -> str:
    """Return the words in backticks, separated by commas: `` `a`, `b` ``."""
    return ", ".join(f"`{word}`" for word in words)


def lower_first(text: str) -> str:
    """Return the text with its first letter in lower case."""
    return text[:1].lower() + text[1:]
