"""All kinds of mutations, and the input for a seed and an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from onnx import ModelProto

from campaigns.fuzz import byte_mutations, extreme_models, field_mutations
from campaigns.fuzz.seed_models import contents

Make = Callable[[Random], bytes]
MONSTER_SHARE = 0.004
"""Share of extreme models, which take as long as a hundred other inputs."""


def _bytes(mutate: Callable[[bytes, Random], bytes]) -> Make:
    return lambda random: mutate(random.choice(contents()), random)


def _pair(mutate: Callable[[bytes, Random, bytes], bytes]) -> Make:
    return lambda random: mutate(random.choice(contents()), random, random.choice(contents()))


def _fields(mutate: Callable[..., Any], *, donor: bool = False) -> Make:
    def made(random: Random) -> bytes:
        model = ModelProto.FromString(random.choice(contents()))
        more = (ModelProto.FromString(random.choice(contents())),) if donor else ()
        for _ in range(random.choice((1, 1, 2, 3))):
            mutate(model, random, *more)
        return model.SerializePartialToString()

    return made


def _several(random: Random) -> bytes:
    """Apply some field mutations, then some byte mutations."""
    model = ModelProto.FromString(random.choice(contents()))
    for _ in range(random.randrange(1, 6)):
        random.choice(_ON_FIELDS)(model, random)
    data = model.SerializePartialToString() or b"\0"
    if random.random() < 0.3:
        data = random.choice(_ON_BYTES)(data, random)
    return data


_ON_FIELDS = [
    *(
        field_mutations.number,
        field_mutations.text,
        field_mutations.blob,
        field_mutations.real,
        field_mutations.clear,
        field_mutations.double,
    ),
    *(
        field_mutations.shuffle,
        field_mutations.rewire,
        field_mutations.operator,
        field_mutations.dims,
        field_mutations.shape,
        field_mutations.external,
    ),
    field_mutations.attribute,
]
_ON_BYTES = [
    byte_mutations.flip,
    byte_mutations.overwrite,
    byte_mutations.lie_number,
    byte_mutations.relabel,
    byte_mutations.strange,
]
_MONSTERS = (
    *("deep_graphs", "deep_branches", "deep_types", "groups", "recursion", "laughs", "call_chain", "long_chain"),
    *("long_cycle", "diamonds", "empty_nodes", "many", "many_dims", "vast", "folding", "long_name"),
)
PLAIN: Mapping[str, Make] = {
    **{
        mutate.__name__.replace("_", "-"): _bytes(mutate)
        for mutate in (
            *_ON_BYTES,
            byte_mutations.truncate,
            byte_mutations.cut_out,
            byte_mutations.lie_length,
            byte_mutations.repeat,
        )
    },
    **{mutate.__name__: _pair(mutate) for mutate in (byte_mutations.splice, byte_mutations.merge)},
    "noise": _bytes(byte_mutations.noise),
    "broken-text": _bytes(field_mutations.broken_text),
    **{f"field-{mutate.__name__}": _fields(mutate) for mutate in _ON_FIELDS},
    "field-transplant": _fields(field_mutations.transplant, donor=True),
    "several": _several,
}
LARGE: Mapping[str, Make] = {name.replace("_", "-"): getattr(extreme_models, name) for name in _MONSTERS}
KINDS: Mapping[str, Make] = {**PLAIN, **LARGE}


@dataclass(frozen=True, slots=True)
class Input:
    """One input: its origin and its bytes."""

    seed: int
    index: int
    kind: str
    data: bytes


def mutant(seed: int, index: int, kinds: tuple[str, ...] = ()) -> Input:
    """Return the input for a seed and an index, of one of the selected kinds."""
    random = Random(f"{seed}/{index}")
    if kinds:
        kind = random.choice(kinds)
    elif random.random() < MONSTER_SHARE:
        kind = random.choice([*LARGE])
    else:
        kind = random.choice([*PLAIN])
    return Input(seed, index, kind, KINDS[kind](random))
