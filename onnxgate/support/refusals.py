"""What a release refuses of a node although its schema and its types are right: constructors and shape inference.

Source: each was measured by loading one node with and without the attribute on ONNX Runtime 1.16 to 1.31.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnxgate.findings import version_order
from onnxgate.support.operations import Miss, Operation

Values = dict[str, int | str]
"""Attributes that are one number or one text, by name."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that releases from `first` to `last` ("": all that there are) refuse of some operators."""

    operators: tuple[str, ...]
    holds: Callable[[Values], bool]
    problem: str
    first: str = ""
    last: str = ""

    def concerns(self, operation: Operation, release: str) -> bool:
        """Whether the release refuses the node for it."""
        return (
            operation.domain == "ai.onnx"
            and operation.name in self.operators
            and _is_within(release, self.first, self.last)
            and self.holds(values(operation))
        )


_FLOAT16 = 10
REFUSALS = (
    Refusal(("GRU", "LSTM", "RNN"), lambda given: given.get("layout") == 1, "`layout` = 1 is not implemented"),
    Refusal(
        ("GRU", "LSTM", "RNN"), lambda given: int(given.get("hidden_size") or 0) <= 0, "`hidden_size` must be given"
    ),
    Refusal(
        ("DFT",),
        lambda given: bool(given.get("onesided")) and bool(given.get("inverse")),
        "`onesided` and `inverse` are not implemented together",
        last="1.24.4",
    ),
    Refusal(
        ("MelWeightMatrix",),
        lambda given: given.get("output_datatype") == _FLOAT16,
        "`output_datatype` = FLOAT16 is not implemented",
    ),
    Refusal(
        ("RotaryEmbedding",),
        lambda given: bool(given.get("rotary_embedding_dim")) and not given.get("num_heads"),
        "`rotary_embedding_dim` is not implemented without `num_heads`",
        first="1.23.0",
        last="1.23.2",
    ),
)
_FLOAT8 = tuple(f"tensor(float8{kind})" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
RESULTS = (
    (_FLOAT8, Refusal(("ConstantOfShape",), lambda given: True, "does not make")),
    (("tensor(bfloat16)",), Refusal(("ConstantOfShape",), lambda given: True, "does not make", "1.17.0", "1.17.3")),
)
"""Types of results that constructors refuse."""
UNREGISTERED = (
    (("tensor(complex64)", "tensor(complex128)"), "", ""),
    (("tensor(int4)", "tensor(uint4)"), "1.18.0", "1.18.1"),
    (("tensor(float4e2m1)",), "1.23.0", "1.23.2"),
    (("tensor(float8e8m0)",), "1.24.1", "1.26.0"),
)
"""Types that ONNX knows at a release's opset and the release does not: first and last release, "" for no end.

Source: Constant with a value of each type that the schema allows, loaded on 17 releases from 1.16.0 to 1.31.1.
"""
LOCALES = (
    Refusal(("StringNormalizer",), lambda given: True, "", last="1.17.3"),
    Refusal(("StringNormalizer",), lambda given: not given.get("is_case_sensitive"), "", first="1.18.0", last="1.26.0"),
    Refusal(
        ("StringNormalizer",),
        lambda given: (
            given.get("case_change_action", "NONE") != "NONE"
            or (not given.get("is_case_sensitive") and "stopwords" in given)
        ),
        "",
        first="1.27.0",
    ),
)
"""Where a locale of the machine is asked for when the model is loaded."""


def refusal(operation: Operation, since: int, release: str) -> Miss | str | None:
    """What is refused of the node; a text where that depends on the machine."""
    for each in REFUSALS:
        if each.concerns(operation, release):
            return Miss("attribute-unsupported", f"`{operation.label}({since})`: {each.problem}")
    for types, each in RESULTS:
        if operation.outputs[:1] and operation.outputs[0] in types and each.concerns(operation, release):
            name = f"{operation.label}({since})"
            return Miss(
                "missing-kernel", f"there is no kernel for `{name}` with `{operation.outputs[0]}` as its result"
            )
    if any(each.concerns(operation, release) for each in LOCALES):
        locale = values(operation).get("locale", "en_US.UTF-8")
        return f"`{operation.label}` loads only where the machine has the locale `{locale}`"
    return None


def body_refusal(operation: Operation, since: int, release: str) -> Miss | None:
    """What the body of an operator is ill-typed for.

    Source: loads on ONNX Runtime 1.23.0 to 1.31.1: Attention(23) until 1.23.2, Attention(24) on all of them.
    """
    mask = operation.inputs[3] if operation.name == "Attention" and len(operation.inputs) > 3 else None
    if operation.domain != "ai.onnx" or mask in (None, "", "tensor(bool)", "tensor(float)"):
        return None
    if since == 23 and version_order(release) > version_order("1.23.2"):
        return None
    problem = f"there is no kernel for `{operation.label}({since})` with `attn_mask` = `{mask}`"
    return Miss("missing-kernel", problem, "implements masks of `tensor(bool)` and `tensor(float)`")


def is_unregistered(type_name: str, release: str) -> bool:
    """Whether a release has no such type at all, not even for constants."""
    return any(type_name in types and _is_within(release, first, last) for types, first, last in UNREGISTERED)


def _is_within(release: str, first: str, last: str) -> bool:
    version = version_order(release)
    return (not first or version >= version_order(first)) and (not last or version <= version_order(last))


def values(operation: Operation) -> Values:
    """The node's attributes; of those that are no single number or text only that they are there."""
    return dict(_values(operation))


def _values(operation: Operation) -> Iterator[tuple[str, int | str]]:
    from onnx import AttributeProto

    for attribute in operation.attributes:
        given = AttributeProto.FromString(attribute.data) if attribute.data else None
        if given is not None and attribute.kind == "INT":
            yield attribute.name, int(given.i)
        elif given is not None and attribute.kind == "STRING":
            yield attribute.name, given.s.decode(errors="replace")
        else:
            yield attribute.name, 0
