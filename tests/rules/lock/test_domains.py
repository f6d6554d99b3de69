"""The operator domains that a model needs."""

from __future__ import annotations

import time

import pytest

from onnxgate.model.facts import ModelFacts
from onnxgate.rules.lock.domain_added import find_added_domains, find_used_domains


def facts(operators: str, domains: str = "", functions: str = "", *, has_functions: bool = False) -> ModelFacts:
    """Return a model with these operators, imports and local functions."""
    return ModelFacts(
        path="m.onnx",
        sha256="",
        size_bytes=1,
        ir_version=8,
        opsets=dict.fromkeys(["ai.onnx", *domains.split()], 1),
        producer="",
        inputs=(),
        outputs=(),
        operators=dict.fromkeys(operators.split(), 1),
        metadata_keys=(),
        function_opsets={"ai.onnx": 18} if has_functions or functions else {},
        functions=tuple(functions.split()),
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (facts("Relu Conv", "com.microsoft"), {}),
        (facts("Relu com.microsoft.Gelu com.microsoft.Attention", "com.microsoft"), {"com.microsoft": 2}),
        (facts("a.b.C.d", "a.b"), {"a.b": 1}),  # a name with a dot in it
        (facts("a.b.C", "a a.b"), {"a.b": 1}),
        (facts("pkg.F", "pkg", "pkg.F"), {}),
        (facts("pkg.F pkg.G", "pkg", "pkg.F"), {"pkg": 1}),
        # A lock does not record which of them are local functions.
        (facts("pkg.F com.microsoft.Gelu", "pkg com.microsoft", has_functions=True), {"com.microsoft": 1}),
        (facts("pkg.F", "pkg"), {"pkg": 1}),
    ],
)
def test_used_domains(model: ModelFacts, expected: dict[str, int]) -> None:
    """Domains that are unused or defined in the file do not count."""
    assert expected == {domain: len(operators) for domain, operators in find_used_domains(model).items()}


LOCKED = facts("pkg.F own.Op own.Other", "pkg own", has_functions=True)
"""Facts from a lock: it does not record that `pkg.F` is a local function."""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (LOCKED, facts("pkg.F own.Op own.Other", "pkg own", "pkg.F"), {}),
        (LOCKED, facts("pkg.F own.Op own.New", "pkg own", "pkg.F"), {}),
        (LOCKED, facts("pkg.F more.Op", "pkg more", "pkg.F"), {"more": ["Op"]}),
        (
            LOCKED,
            facts("pkg.F own.Op com.microsoft.Gelu", "pkg own com.microsoft", "pkg.F"),
            {"com.microsoft": ["Gelu"]},
        ),
        (facts("pkg.F", "pkg", "pkg.F"), facts("pkg.F", "pkg"), {"pkg": ["F"]}),
        (facts("own.Op", "own"), facts("own.Op own.New", "own"), {}),
    ],
)
def test_added_domains(before: ModelFacts, after: ModelFacts, expected: dict[str, list[str]]) -> None:
    """A domain is not new if the lock counted one of its operators."""
    assert expected == find_added_domains(before, after)


def test_many_domains_cost_little() -> None:
    """Operators are not compared with each of the imported domains, which would be quadratic."""
    domains = [f"domain{index}" for index in range(10_000)]
    model = facts(" ".join(f"{domain}.Op" for domain in domains), " ".join(domains))
    before = time.process_time()

    used = find_used_domains(model)

    assert sorted(domains) == list(used)
    assert time.process_time() - before < 1
