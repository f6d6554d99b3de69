"""The division of a check: the same wherever it is computed, and never another one than was planned."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64encode
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.errors import UsageError
from onnxgate.gate.sharding.plan import (
    CheckState,
    Division,
    ShardSelector,
    divide_models,
    encode_weights,
    pack_weight,
    parse_selector,
    resolve_division,
    round_weight,
    unpack_weight,
)

PATHS = tuple(f"models/{letter}.onnx" for letter in "abcdef")
EVEN = dict.fromkeys(PATHS, 100)


def state(models: tuple[str, ...] = PATHS, config: str = "c") -> CheckState:
    """What is divided."""
    return CheckState("0.1.0", config, "l", models)


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 2**40), min_size=1, max_size=40), st.integers(1, 9)
)
def test_each_model_is_in_one_shard(weights: dict[str, int], of: int) -> None:
    """All shards together have every model once; a shard is empty only where there are fewer models than shards."""
    division = divide_models(state(tuple(sorted(weights))), of, weights)
    shards = [division.of_shard(index) for index in range(1, of + 1)]

    assert sorted(weights) == sorted(path for shard in shards for path in shard)
    assert min(of, len(weights)) == sum(map(bool, shards))


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.integers(1, 9))
def test_shards_are_balanced(weights: list[int], of: int) -> None:
    """No shard takes more than the mean and the heaviest model: what the greedy division promises."""
    by_path = {f"{number:03}": weight for number, weight in enumerate(weights)}
    division = divide_models(state(tuple(by_path)), of, by_path)
    loads = [sum(by_path[path] for path in division.of_shard(index)) for index in range(1, of + 1)]

    assert max(loads) <= sum(weights) / of + max(weights)


def test_ties_are_broken_alike() -> None:
    """Equal weights are dealt in the order of paths."""
    assert (1, 2, 3, 1, 2, 3) == divide_models(state(), 3, EVEN).shards


def test_the_order_of_weights_is_of_no_matter() -> None:
    """Only what they say counts."""
    weights = {path: index * 7 % 5 for index, path in enumerate(PATHS)}

    assert divide_models(state(), 3, weights) == divide_models(state(), 3, dict(reversed(weights.items())))


@given(st.integers(1, 2**31))
def test_a_weight_in_one_byte(weight: int) -> None:
    """It loses less than an eighth, and rounding again loses nothing."""
    assert weight * 7 / 8 <= round_weight(weight) <= weight
    assert round_weight(round_weight(weight)) == round_weight(weight)
    assert 0 <= pack_weight(weight) <= 255


def test_bytes_grow_with_weights() -> None:
    """A heavier byte never stands for less."""
    weights = [unpack_weight(byte) for byte in range(256)]

    assert all(low <= high for low, high in pairwise(weights))
    assert pack_weight(2**60) == 255
    assert pack_weight(0) == pack_weight(1)


def test_parsed() -> None:
    """What is written is read again."""
    asked = ShardSelector(2, 4, "0123456789ab", "eNpj_-x")

    assert parse_selector("2/4") == ShardSelector(2, 4)
    assert parse_selector(str(asked)) == asked
    assert parse_selector("2/4@0123456789ab") == ShardSelector(2, 4, "0123456789ab")


@pytest.mark.parametrize(
    "text",
    ["", "2", "0/4", "5/4", "1/0", "1/257", "-1/4", "1/4@", "1/4@xyz", "1/4@0123456789ab.", "1/4 ", "1/٤", "1/4\n"],
)
def test_not_parsed(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="--shard"):
        parse_selector(text)


@given(st.lists(st.integers(0, 2**38), min_size=len(PATHS), max_size=len(PATHS)), st.integers(1, 256))
def test_a_job_divides_as_was_planned(weights: list[int], of: int) -> None:
    """The weights travel with the shard; estimates of the job's own are of no matter then."""
    code, read = encode_weights(weights, of)
    planned = divide_models(state(), of, dict(zip(PATHS, read, strict=True)))

    assert planned == resolve_division(state(), ShardSelector(1, of, planned.plan[:12], code), EVEN)


def test_many_weights_become_coarser() -> None:
    """What a job may output is limited; the weights of many models in many shards are said in fewer bits."""
    mixed = [number * 2654435761 % 2**32 for number in range(4000)]
    weights = [(16 + number % 16) << (number >> 16) % 24 for number in mixed]
    code, read = encode_weights(weights, 256)

    assert 0 < len(code) * 256 <= 700_000
    assert len(set(read)) < len({round_weight(weight) for weight in weights})


@pytest.mark.parametrize(
    "other",
    [state(config="d"), state(PATHS[1:]), CheckState("0.2.0", "c", "l", PATHS), CheckState("0.1.0", "c", "m", PATHS)],
    ids=["config", "models", "version", "lock"],
)
def test_another_state_is_refused(other: CheckState) -> None:
    """A job that would divide something else says so, and judges nothing."""
    planned = divide_models(state(), 2, EVEN)
    with pytest.raises(UsageError, match="another plan"):
        resolve_division(other, ShardSelector(1, 2, planned.plan[:12]), EVEN)


def test_other_estimates_are_refused() -> None:
    """So does one that would divide otherwise."""
    planned = divide_models(state(), 2, EVEN)
    uneven = {path: 2**number for number, path in enumerate(PATHS)}
    with pytest.raises(UsageError, match="another plan"):
        resolve_division(state(), ShardSelector(1, 2, planned.plan[:12]), uneven)


@pytest.mark.parametrize(
    "code",
    [
        encode_weights([1] * 5, 2)[0],
        encode_weights([1] * 7, 2)[0],
        encode_weights([1] * 6, 2)[0][:-4],
        "AAAA",
        "A",
        urlsafe_b64encode(zlib.compress(bytes(10**7))).decode().rstrip("="),
    ],
    ids=["fewer", "more", "cut", "no-zlib", "no-base64", "bomb"],
)
def test_damaged_weights(code: str) -> None:
    """Weights of other models, or cut off, are refused; no more is unpacked than there are models."""
    with pytest.raises(UsageError, match="does not hold the weights"):
        resolve_division(state(), ShardSelector(1, 2, "", code), EVEN)


def test_the_plan_is_of_the_division() -> None:
    """Another division of the same files is another plan."""
    assert divide_models(state(), 2, EVEN).plan != divide_models(state(), 3, EVEN).plan
    assert Division(state(), 2, (1, 2, 1, 2, 1, 2)).plan != Division(state(), 2, (2, 1, 2, 1, 2, 1)).plan
