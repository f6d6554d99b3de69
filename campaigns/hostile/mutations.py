# ruff: noqa: E501
"""Mutations of valid inputs: truncated, repeated, spliced, or with other values."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from campaigns.hostile import hostile_strings

TOKENS = (
    b"[" * 3000, b"{" * 3000, b"a." * 2000, b'{"a":' * 3000, b"[[[[[", b"]]]", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x80",
    b"9" * 5000, b"-1", b"0", b"18446744073709551616", b"9223372036854775807", b"1e999", b"nan", b"inf", b"NaN", b"Infinity",
    b"true", b"null", b'""', b'"\\ud800"', b"[]", b"{}", b"'", b'"""', b"#", b"\n", b"\r\n", b"=", b"<<<<<<< ours\n",
    b"=======\n", b">>>>>>> theirs\n", b"2027-02-30", b"2027-03-31T00:00:00Z", b"../", b"/", b"\\", b"~", b"**/" * 40,
    b"*" * 60, b"[z-a]", b"[!", b"version = 2\n", b"version = 99999999999999999999\n", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
)  # fmt: skip


def of_bytes(random: Random, seed: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """Change some bytes at random positions."""
    data = bytearray(seed)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(data) + 1)
        match random.randrange(8):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << random.randrange(8)
            case 1:
                del data[at : at + random.randrange(1, 64)]
            case 2:
                data[at:at] = random.choice(TOKENS)
            case 3:
                data = data[:at]
            case 4:
                size = random.randrange(1, 200)
                data[at:at] = data[at : at + size] * random.choice((1, 2, 50))
            case 5 if others:
                other = random.choice(others)
                start = random.randrange(len(other) + 1)
                data[at : at + random.randrange(200)] = other[start : start + random.randrange(200)]
            case 6:
                data[at:at] = hostile_strings.text(random).encode("utf-8", "surrogatepass")
            case _:
                data[at : at + random.randrange(8)] = random.randbytes(random.randrange(8))
    return bytes(data)


def of_json(random: Random, seed: bytes) -> bytes:
    """Replace a few values in a JSON document with values of the same or a different type."""
    value = json.loads(seed)
    for _ in range(random.choice((1, 1, 2, 4))):
        value = _changed(random, value)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _changed(random: Random, value: Any) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.95:
        key = random.choice(list(value))
        rest = dict(value)
        match random.randrange(12):
            case 0:
                del rest[key]
            case 1:
                rest[hostile_strings.text(random)] = rest[key]
            case _:
                rest[key] = _changed(random, value[key])
        return rest
    if isinstance(value, list) and value and random.random() < 0.95:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case _:
                return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    return _replacement(random, value)


def _replacement(random: Random, value: Any) -> Any:
    if isinstance(value, str) and random.random() < 0.7:
        return hostile_strings.text(random)
    if isinstance(value, bool | int | float) and random.random() < 0.7:
        return random.choice(
            (0, 1, -1, 2, 255, 256, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 1e308, 1e999, 0.5, 3)
        )
    nested: Any = []
    for _ in range(random.choice((1, 500))):
        nested = [nested]
    return random.choice(
        (None, True, 0, -1, 2**70, "", "x", [], {}, [value], {"a": value}, nested, 1e999, float("nan"))
    )
