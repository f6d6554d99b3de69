"""Division of a check into shards: deterministic, and always the one that was planned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.errors import UsageError
from onnxgate.gate.sharding.plan import (
    CheckState,
    Division,
    PlanFile,
    ShardPlan,
    divide_models,
    load_division,
    parse_shard,
)

PATHS = tuple(f"models/{letter}.onnx" for letter in "abcdef")
EVEN = dict.fromkeys(PATHS, 100)


def state(models: tuple[str, ...] = PATHS, config: str = "c") -> CheckState:
    """Return the state of a check."""
    return CheckState("0.1.0", config, "l", models)


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 2**40), min_size=1, max_size=40), st.integers(1, 9)
)
def test_each_model_is_in_one_shard(weights: dict[str, int], of: int) -> None:
    """Each model is in exactly one shard; a shard is empty only if there are fewer models than shards."""
    division = divide_models(state(tuple(sorted(weights))), of, weights)
    shards = [division.of_shard(index) for index in range(1, of + 1)]

    assert sorted(weights) == sorted(path for shard in shards for path in shard)
    assert min(of, len(weights)) == sum(map(bool, shards))


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.integers(1, 9))
def test_shards_are_balanced(weights: list[int], of: int) -> None:
    """No shard exceeds the mean plus the heaviest model, the guarantee of greedy division."""
    by_path = {f"{number:03}": weight for number, weight in enumerate(weights)}
    division = divide_models(state(tuple(by_path)), of, by_path)
    loads = [sum(by_path[path] for path in division.of_shard(index)) for index in range(1, of + 1)]

    assert max(loads) <= sum(weights) / of + max(weights)


def test_ties_are_broken_alike() -> None:
    """Models of equal weight are assigned in the order of their paths."""
    assert (1, 2, 3, 1, 2, 3) == divide_models(state(), 3, EVEN).shards


def test_order_of_weights_does_not_matter() -> None:
    """The order of the weights does not matter."""
    weights = {path: index * 7 % 5 for index, path in enumerate(PATHS)}

    assert divide_models(state(), 3, weights) == divide_models(state(), 3, dict(reversed(weights.items())))


def test_parsed() -> None:
    """A shard is parsed into its number and the total."""
    assert (2, 4) == parse_shard("2/4")


@pytest.mark.parametrize(
    "text",
    ["", "2", "0/4", "5/4", "1/0", "1/257", "-1/4", "1/4@", "1/4@0123456789ab", "1/4 ", "1/٤", "1/4\n"],
)
def test_not_parsed(text: str) -> None:
    """Any other text is an error."""
    with pytest.raises(UsageError, match="--shard"):
        parse_shard(text)


def write_plan(file: Path, division: Division) -> Path:
    """Write a division as a file of `onnxgate plan`."""
    file.write_bytes(msgspec.json.encode(PlanFile(ShardPlan(division, {}, 0).entries)))
    return file


@pytest.mark.parametrize("of", [1, 2, 9])
def test_a_job_divides_as_was_planned(tmp_path: Path, of: int) -> None:
    """The division is read from the plan, whatever the job's own estimates are."""
    weights = {path: 2**number for number, path in enumerate(PATHS)}
    planned = divide_models(state(), of, weights)

    assert planned == load_division(write_plan(tmp_path / "plan.json", planned), state(), of)


def test_plan_without_models(tmp_path: Path) -> None:
    """A plan without models is valid only for a check without models."""
    file = write_plan(tmp_path / "plan.json", divide_models(state(()), 2, {}))

    assert () == load_division(file, state(()), 2).shards
    with pytest.raises(UsageError, match="another check"):
        load_division(file, state(), 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"config": "d"},
        {"models": PATHS[1:]},
        {"models": (*PATHS, "z.onnx")},
        {"onnxgate": "0.2.0"},
        {"lock": "m"},
        {"of": 3},
    ],
    ids=["config", "fewer models", "more models", "version", "lock", "number of shards"],
)
def test_another_state_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    """A job for a different state reports an error and checks nothing."""
    file = write_plan(tmp_path / "plan.json", divide_models(state(), 2, EVEN))
    fields = {"of": 2, **changed}
    of = fields.pop("of")
    with pytest.raises(UsageError, match="another check"):
        load_division(file, dataclasses.replace(state(), **fields), of)  # type: ignore[arg-type]


def test_a_model_that_was_moved_is_refused(tmp_path: Path) -> None:
    """A plan whose content does not match its key is an error."""
    file = write_plan(tmp_path / "plan.json", divide_models(state(), 2, EVEN))
    a, b = PATHS[:2]
    text = file.read_text(encoding="utf-8").replace(a, "?").replace(b, a).replace("?", b)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="another check"):
        load_division(file, state(), 2)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"include": [{"shard": 1}]}', b"\xff", b"[" * 100_000])
def test_invalid_plan_is_an_error(tmp_path: Path, content: bytes) -> None:
    """An invalid or unreadable plan is an error."""
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match="is not a plan"):
        load_division(file, state(), 2)


def test_a_plan_that_does_not_exist(tmp_path: Path) -> None:
    """The error says so, without an error number of the system."""
    with pytest.raises(UsageError, match=r"absent.json` does not exist$"):
        load_division(tmp_path / "absent.json", state(), 2)


def test_the_plan_is_of_the_division() -> None:
    """A different division of the same files has a different plan key."""
    assert divide_models(state(), 2, EVEN).plan != divide_models(state(), 3, EVEN).plan
    assert Division(state(), 2, (1, 2, 1, 2, 1, 2)).plan != Division(state(), 2, (2, 1, 2, 1, 2, 1)).plan
