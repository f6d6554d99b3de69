"""Mutations of a parsed model, each of which changes one field of one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from onnx import ModelProto, TensorProto

NUMBERS = (0, 1, -1, 2, 7, 16, 100, 999, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
NAMES = (
    *("", "x", "y", "a", " ", "/", ".", "..", "ai.onnx", "com.microsoft", "local", "own", "inner", "outer", "twice"),
    *(
        "\0",
        "a\0b",
        "\x1b[31m",
        "\n",
        "\u202e",
        "\ufeff",
        "\U0001f4a9",
        "%s{0}",
        "`",
        "'\"",
        "N",
        "-1",
        "1/0",
        "2**9**9",
    ),
    *("x" * 300, "N" + "+1" * 2000, "(" * 300, "Identity", "If", "Loop", "Constant", "Cast", "pkg.torch", "a" * 70000),
)
PLACES = (
    *("", ".", "..", "/dev/zero", "data.bin", "../data.bin", "data.bin/", "./data.bin", "nowhere", "a/" * 3000, "\0"),
    *("C:\\x", "\\\\host\\share", "seed.onnx", "link", "pipe", "x" * 300),
)
OFFSETS = ("-1", "0", "90", "1e3", "x", "", "9" * 30, "9" * 4300, "9" * 5000, " 4 ", "1_0", "٣", str(2**63), str(2**64))
INTEGERS, FLOATING, TEXT, BLOB, MESSAGE = {3, 4, 5, 13, 14, 17}, {1, 2}, 9, 12, 11
"""Field types. Source: FieldDescriptorProto.Type."""
_MOST_BYTES = 60_000
"""Messages larger than this are not copied into themselves."""


def messages(message: Any) -> Iterator[Any]:
    """Yield the message and all nested messages."""
    yield message
    for field, value in message.ListFields():
        if field.type == MESSAGE:
            for each in value if _is_repeated(field) else (value,):
                yield from messages(each)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _any_field(model: ModelProto, random: Random, fits: Callable[[Any], bool], *, present: bool) -> tuple[Any, Any]:
    every = [
        (message, field)
        for message in messages(model)
        for field in ((f for f, _ in message.ListFields()) if present else message.DESCRIPTOR.fields)
        if fits(field)
    ]
    return random.choice(every) if every else (None, None)


def number(model: ModelProto, random: Random) -> None:
    """Change a number: an unknown type, a negative or huge size."""
    message, field = _any_field(model, random, lambda field: field.type in INTEGERS, present=random.random() < 0.8)
    if message is not None:
        _assign(message, field, random, _integer(field, random))


def _integer(field: Any, random: Random) -> int:
    if field.enum_type is not None and random.random() < 0.7:
        return int(random.choice(field.enum_type.values).number)
    value = random.choice(NUMBERS) if random.random() < 0.7 else random.randrange(40)
    bits = 31 if field.type in {5, 14, 13, 17} else 63
    low = 0 if field.type in {4, 13} else -(2**bits)
    return min(max(value, low), 2**bits - 1)


def _assign(message: Any, field: Any, random: Random, value: Any) -> None:
    try:
        if not _is_repeated(field):
            setattr(message, field.name, value)
        elif (held := getattr(message, field.name)) and random.random() < 0.7:
            held[random.randrange(len(held))] = value
        else:
            held.append(value)
    except ValueError:  # closed enums accept no other number
        return


def text(model: ModelProto, random: Random) -> None:
    """Change a name: empty, the name of another element, very long, with NUL or terminal escapes."""
    message, field = _any_field(model, random, lambda field: field.type == TEXT, present=random.random() < 0.8)
    if message is not None:
        _assign(message, field, random, random.choice(NAMES))


def blob(model: ModelProto, random: Random) -> None:
    """Change bytes or their length."""
    message, field = _any_field(model, random, lambda field: field.type == BLOB, present=random.random() < 0.7)
    if message is not None:
        _assign(message, field, random, random.choice((b"", b"\0", b"\xff\xfe", random.randbytes(16), bytes(1500))))


def real(model: ModelProto, random: Random) -> None:
    """Change a float."""
    message, field = _any_field(model, random, lambda field: field.type in FLOATING, present=random.random() < 0.7)
    if message is not None:
        _assign(message, field, random, random.choice((0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"), 0.5)))


def clear(model: ModelProto, random: Random) -> None:
    """Remove a field."""
    message, field = _any_field(model, random, lambda field: True, present=True)
    if message is not None:
        message.ClearField(field.name)


def double(model: ModelProto, random: Random) -> None:
    """Repeat elements of a list, which results in duplicate names."""
    message, field = _any_field(model, random, _is_repeated, present=True)
    if message is None:
        return
    held = getattr(message, field.name)
    copied = type(message)()
    copied.CopyFrom(message)
    for _ in range(random.choice((1, 1, 2, 20)) if copied.ByteSize() < _MOST_BYTES // 20 else 1):
        held.extend(getattr(copied, field.name))


def shuffle(model: ModelProto, random: Random) -> None:
    """Reorder elements of a list, which results in unsorted nodes and cycles."""
    message, field = _any_field(
        model, random, lambda field: _is_repeated(field) and field.type == MESSAGE, present=True
    )
    if message is None:
        return
    held = getattr(message, field.name)
    copied = type(message)()
    copied.CopyFrom(message)
    order = random.sample(range(len(held)), len(held))
    del held[:]
    held.extend(getattr(copied, field.name)[index] for index in order)


def transplant(model: ModelProto, random: Random, other: ModelProto) -> None:
    """Replace a message with a different message of the same type, from this model or another model."""
    message, field = _any_field(model, random, lambda field: field.type == MESSAGE, present=random.random() < 0.7)
    if message is None or model.ByteSize() > _MOST_BYTES:
        return
    donor = other if random.random() < 0.5 else model
    fitting = [each for each in messages(donor) if each.DESCRIPTOR is field.message_type]
    if fitting:
        given = type(fitting[0]).FromString(random.choice(fitting).SerializePartialToString())
        held = getattr(message, field.name)
        held.append(given) if _is_repeated(field) else held.CopyFrom(given)


def rewire(model: ModelProto, random: Random) -> None:
    """Change inputs and outputs of nodes: duplicates, cycles, unknown values, too many, none."""
    nodes = [message for message in messages(model) if message.DESCRIPTOR.name == "NodeProto"]
    names = [name for node in nodes for name in (*node.input, *node.output)] or [""]
    for _ in range(random.choice((1, 2, 4))):
        if nodes:
            node = random.choice(nodes)
            held = random.choice((node.input, node.output))
            if held and random.random() < 0.7:
                held[random.randrange(len(held))] = random.choice(names)
            elif random.random() < 0.5:
                held.extend(random.choices(names, k=random.choice((1, 3, 40))))
            else:
                del held[:1]


def operator(model: ModelProto, random: Random) -> None:
    """Change a node's operator, or make the node call a local function."""
    from onnx import defs

    nodes = [message for message in messages(model) if message.DESCRIPTOR.name == "NodeProto"]
    if nodes:
        schema = random.choice(_schemas(defs))
        node = random.choice(nodes)
        node.op_type, node.domain = schema
        if model.functions and random.random() < 0.4:
            called = random.choice(model.functions)
            node.op_type, node.domain, node.overload = called.name, called.domain, called.overload


_KNOWN: list[tuple[str, str]] = []


def _schemas(defs: Any) -> list[tuple[str, str]]:
    if not _KNOWN:
        _KNOWN.extend(sorted({(schema.name, schema.domain) for schema in defs.get_all_schemas_with_history()}))
    return _KNOWN


def dims(model: ModelProto, random: Random) -> None:
    """Change a tensor's shape: negative, zero, huge, too many axes."""
    tensors = [
        message for message in messages(model) if message.DESCRIPTOR.name in ("TensorProto", "SparseTensorProto")
    ]
    if not tensors:
        return shape(model, random)
    tensor = random.choice(tensors)
    if random.random() < 0.5:
        del tensor.dims[:]
    tensor.dims.extend(random.choices(NUMBERS, k=random.choice((0, 1, 2, 8, 300))))
    return None


def shape(model: ModelProto, random: Random) -> None:
    """Change a value's shape."""
    values = [message for message in messages(model) if message.DESCRIPTOR.name == "ValueInfoProto"]
    if values:
        held = random.choice(values).type.tensor_type
        if random.random() < 0.3:
            del held.shape.dim[:]
        for _ in range(random.choice((0, 1, 2, 40))):
            dim = held.shape.dim.add()
            if random.random() < 0.6:
                dim.dim_value = random.choice(NUMBERS)
            else:
                dim.dim_param = random.choice(NAMES)


def external(model: ModelProto, random: Random) -> None:
    """Change external data: a different location, duplicate entries, a missing file, a tensor with its own data."""
    tensors = [message for message in messages(model) if message.DESCRIPTOR.name == "TensorProto"]
    tensor = random.choice(tensors) if tensors else model.graph.initializer.add(name="w", data_type=1, dims=[2])
    tensor.data_location = random.choice((TensorProto.EXTERNAL, TensorProto.EXTERNAL, TensorProto.DEFAULT))
    for _ in range(random.choice((1, 2, 3, 5))):
        key = random.choice(("location", "offset", "length", "checksum", "", "offset"))
        value = random.choice(PLACES) if key == "location" else random.choice(OFFSETS)
        tensor.external_data.add(key=key, value=value)
    if random.random() < 0.5:
        tensor.external_data.add(key="location", value="data.bin")


def attribute(model: ModelProto, random: Random) -> None:
    """Change an attribute: several values, a different type, an invalid reference."""
    nodes = [message for message in messages(model) if message.DESCRIPTOR.name == "NodeProto"]
    if not nodes:
        return
    node = random.choice(nodes)
    held = random.choice(node.attribute) if node.attribute and random.random() < 0.7 else node.attribute.add(name="to")
    held.type = random.choice(list(range(15)))
    match random.randrange(6):
        case 0:
            held.ref_attr_name = random.choice(NAMES)
        case 1:
            held.name = random.choice(("value", "to", "axis", "body", "alpha", "kernel_shape", "perm", ""))
        case 2:
            held.ints.extend(random.choices(NUMBERS, k=random.choice((1, 3, 100))))
        case 3:
            held.strings.append(b"\xff\xfe")
        case 4:
            held.t.data_type = random.randrange(40)
        case _:
            held.i = random.choice(NUMBERS)


def broken_text(data: bytes, random: Random) -> bytes:
    """Set a name to invalid UTF-8: a surrogate, a single byte, an overlong NUL."""
    from campaigns.fuzz.byte_mutations import spots
    from onnxgate.model.reading.file_format import LENGTH

    candidates = [spot for spot in spots(data) if spot.wire == LENGTH and spot.end > spot.start]
    if not candidates:
        return data
    spot = random.choice(candidates)
    wrong = random.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\x80", b"\xf5\x80\x80\x80", b"\x00"))
    size = spot.end - spot.start
    return data[: spot.start] + (wrong * size)[:size] + data[spot.end :]
