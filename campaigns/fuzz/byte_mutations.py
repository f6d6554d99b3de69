"""Mutations of a model's bytes, at random positions or in fields, numbers and lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from onnxgate.model.reading.file_format import FIXED32, FIXED64, LENGTH, VARINT, encode_varint

LIES = (0, 1, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
"""Boundary values of integer types; 2^64 - 1 is protobuf's encoding of -1."""
_DEPTH = 24
_START_GROUP, _END_GROUP = 3, 4


@dataclass(frozen=True, slots=True)
class Spot:
    """Offsets of a field's tag, content and end, and of the length prefixes of the messages that contain it."""

    number: int
    wire: int
    tag: int
    start: int
    end: int
    depth: int


def spots(data: bytes, start: int = 0, end: int | None = None, depth: int = 0) -> list[Spot]:
    """Return all fields, including nested ones, as far as the bytes can be parsed as messages."""
    found: list[Spot] = []
    position, end = start, len(data) if end is None else end
    while position < end:
        spot = _spot(data, position, end, depth)
        if spot is None:
            return [] if depth else found
        found.append(spot)
        if spot.wire == LENGTH and depth < _DEPTH and spot.end - spot.start > 1:
            found += spots(data, spot.start, spot.end, depth + 1)
        position = spot.end
    return found


def _spot(data: bytes, tag: int, end: int, depth: int) -> Spot | None:
    key, start = _number(data, tag, end)
    number, wire = key >> 3, key & 7
    if start < 0 or not 0 < number < 64:
        return None
    if wire == VARINT:
        _, stop = _number(data, start, end)
    elif wire == LENGTH:
        length, start = _number(data, start, end)
        stop = start + length if start >= 0 else -1
    else:
        stop = {FIXED32: start + 4, FIXED64: start + 8}.get(wire, -1)
    return Spot(number, wire, tag, start, stop, depth) if start <= stop <= end else None


def _number(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    return 0, -1


def flip(data: bytes, random: Random) -> bytes:
    """Flip some bits."""
    mutated = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 8))):
        mutated[random.randrange(len(mutated))] ^= 1 << random.randrange(8)
    return bytes(mutated)


def overwrite(data: bytes, random: Random) -> bytes:
    """Change some bytes."""
    mutated = bytearray(data)
    for _ in range(random.choice((1, 2, 8))):
        mutated[random.randrange(len(mutated))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    return bytes(mutated)


def truncate(data: bytes, random: Random) -> bytes:
    """Truncate the file."""
    return data[: random.randrange(len(data))]


def splice(data: bytes, random: Random, other: bytes) -> bytes:
    """Join the beginning of one model with the end of another."""
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def merge(data: bytes, random: Random, other: bytes) -> bytes:
    """Concatenate two models, which protobuf merges, or insert one into the other."""
    if random.random() < 0.5:
        return data + other
    where = random.choice(spots(data))
    return data[: where.tag] + other + data[where.tag :]


def cut_out(data: bytes, random: Random) -> bytes:
    """Remove some bytes without correcting length prefixes."""
    start = random.randrange(len(data))
    return data[:start] + data[start + random.choice((1, 2, 8, 64)) :]


def lie_number(data: bytes, random: Random) -> bytes:
    """Set a number to a boundary value."""
    return _with_varint(data, random, VARINT)


def lie_length(data: bytes, random: Random) -> bytes:
    """Change a length."""
    return _with_varint(data, random, LENGTH)


def _with_varint(data: bytes, random: Random, wire: int) -> bytes:
    mutated = [spot for spot in spots(data) if spot.wire == wire]
    if not mutated:
        return truncate(data, random)
    spot = random.choice(mutated)
    _, after = _number(data, spot.tag, len(data))
    end = spot.end if wire == VARINT else spot.start
    honest = spot.end - spot.start
    value = random.choice((*LIES, honest + 1, max(honest - 1, 0), honest * 2))
    return data[:after] + _spelled(value, random) + data[end:]


def _spelled(value: int, random: Random) -> bytes:
    """Encode a varint, sometimes with redundant or too many bytes."""
    plain = encode_varint(value)
    if random.random() < 0.8:
        return plain
    return plain[:-1] + bytes([plain[-1] | 0x80]) + b"\x80" * random.choice((0, 1, 4, 12)) + b"\x00"


def relabel(data: bytes, random: Random) -> bytes:
    """Change a field's number or wire type."""
    spot = random.choice(spots(data))
    _, after = _number(data, spot.tag, len(data))
    number = random.choice((spot.number, random.randrange(1, 32), 0, 536870911))
    wire = random.choice((spot.wire, random.randrange(8)))
    return data[: spot.tag] + encode_varint(number << 3 | wire) + data[after:]


def repeat(data: bytes, random: Random) -> bytes:
    """Repeat a top-level field."""
    spot = random.choice([spot for spot in spots(data) if not spot.depth])
    return data + data[spot.tag : spot.end] * random.choice((1, 2, 50))


def strange(data: bytes, random: Random) -> bytes:
    """Insert an unknown field or a group."""
    spot = random.choice(spots(data))
    return data[: spot.tag] + b"".join(_strange(random)) + data[spot.tag :]


def _strange(random: Random) -> Iterator[bytes]:
    number = random.choice((30, 99, 5000, 536870911))
    depth = random.choice((0, 1, 3, 120))
    yield encode_varint(number << 3 | _START_GROUP) * depth
    yield encode_varint(number << 3 | LENGTH) + b"\x03abc"
    yield encode_varint(number << 3 | _END_GROUP) * (depth if random.random() < 0.8 else depth + 1)


def noise(data: bytes, random: Random) -> bytes:
    """Return a valid beginning followed by random bytes."""
    return data[: random.choice((0, 2, 16))] + random.randbytes(random.randrange(1, 200))
