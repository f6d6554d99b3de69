"""Known limits and wrong results of engines, so that a finding can refer to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.project.engines import parse_engine


@dataclass(frozen=True, slots=True)
class EngineLimit:
    """One limit of some releases of an engine, and its symptom."""

    engine: str
    releases: SpecifierSet
    words: str  # after "a known limit of <engine>: "
    quantized: bool = False  # outputs of models that round to steps differ
    operators: frozenset[str] = frozenset()  # of models with all of these
    says: re.Pattern[str] | None = None  # a refusal in these words


# Source, unless an entry has its own: measured on a CNN, BERT, GPT-2 and ViT of two layers in float, float16 and int8.
ENGINE_LIMITS = (
    EngineLimit(
        # Source: the three nodes alone are 0.76 off; nine other operators in the place of Softmax are right.
        "tract",
        SpecifierSet("<=0.23.9"),
        "it computes a Softmax between DequantizeLinear and QuantizeLinear wrongly, and says nothing",
        quantized=True,
        operators=frozenset({"Softmax", "QuantizeLinear", "DequantizeLinear"}),
    ),
    EngineLimit(
        "tract",
        SpecifierSet("<=0.23.9"),
        "it has no Gemm in float16",
        says=re.compile(r"(?i)gemm[\s\S]*\bf16|\bf16\b[\s\S]*gemm"),
    ),
    EngineLimit(
        # Source: an Equal of two booleans, as exporters of floor division write it.
        "tract",
        SpecifierSet("<=0.23.9"),
        "it compares no booleans",
        says=re.compile(r"Eq\s+Caused by:\s+Bool is not a number"),
    ),
    EngineLimit(
        "openvino",
        SpecifierSet("<=2026.4.1"),
        "where a value lies between two int8 steps it may take the other one, and that can grow",
        quantized=True,
    ),
    EngineLimit(
        "onnx",
        SpecifierSet("<=1.23.2"),
        "its reference evaluator cannot run every GatherElements",
        says=re.compile(r"cannot reshape array of size \d+ into shape"),
    ),
    EngineLimit(
        # Source: a GRU of both directions on 1.13.1 to 1.22.0; 1.23.2 runs it.
        "onnx",
        SpecifierSet("<1.23"),
        "its reference evaluator runs recurrent layers in one direction only",
        says=re.compile(r"Unsupported value 2 for num_directions and operator '(GRU|LSTM|RNN)'"),
    ),
    EngineLimit(
        # Source: `No implementation for operator 'DequantizeLinear' domain '' and version 18, found 19, 21, 23, 25`.
        "onnx",
        SpecifierSet("<=1.23.2"),
        "its reference evaluator has some operators of newer opsets alone: DequantizeLinear since 19",
        says=re.compile(r"No implementation for operator '\w+' domain '' and version \d+, found \d"),
    ),
    EngineLimit(
        "opencv-python-headless",
        SpecifierSet("<=5.0.0.93"),
        "its GatherND takes no booleans, and it reads few quantized models",
        says=re.compile(r"GatherND|bufidx|zpshape"),
    ),
)


def find_value_limit(runtime: str, comparability: NumericTraits, operators: Collection[str]) -> str:
    """Return the reason why an engine's outputs may differ for these operators, "" if none is known."""
    return _describe_limit(
        limit
        for limit in _limits_of_runtime(runtime)
        if limit.quantized and comparability.quantized and limit.operators.issubset(operators)
    )


def find_text_limit(runtime: str, text: str) -> str:
    """Return the known limit that explains an error text, "" if there is none."""
    return _describe_limit(
        limit for limit in _limits_of_runtime(runtime) if limit.says is not None and limit.says.search(text)
    )


def _limits_of_runtime(runtime: str) -> Iterator[EngineLimit]:
    release = runtime.rpartition(" ")[2]
    for engine_limit in ENGINE_LIMITS:
        if engine_limit.engine == parse_engine(runtime) and engine_limit.releases.contains(release, prereleases=True):
            yield engine_limit


def _describe_limit(limits: Iterator[EngineLimit]) -> str:
    return next((f"a known limit of {limit.engine}: {limit.words}" for limit in limits), "")
