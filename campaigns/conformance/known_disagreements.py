"""Explained disagreements. The suite fails if a disagreement has no entry here, or if an entry is unused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from campaigns.conformance.comparison import Comparison, Disagreement, Kind
from campaigns.conformance.load_outcome import BACKEND, FUZZ, PAIRS


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explains disagreements of one kind, selected by model name, error text and release. `why` is the cause."""

    why: str
    kind: Kind
    name: str
    text: str
    releases: str
    corpus: str = BACKEND
    optimization: tuple[str, ...] = ("all", "disabled")

    def covers(self, each: Disagreement) -> bool:
        """Return whether this explains the disagreement."""
        return (
            self.concerns(each.corpus, each.optimization, each.release)
            and each.kind == self.kind
            and re.fullmatch(self.name, each.name) is not None
            and re.search(self.text, each.text) is not None
        )

    def concerns(self, corpus: str, optimization: str, release: str) -> bool:
        """Return whether the disagreement is expected on this release."""
        on_release = re.fullmatch(self.releases, release) is not None
        return corpus == self.corpus and optimization in self.optimization and on_release


_CAST = "in the body of Attention, the runtime inserts a cast next to a Cast to float16 and then reports wrong types"
_CAST_TEXT = r"output arg \(InsertedPrecisionFreeCast_\w*Attention_\w*QKAttnCast\) of node \(\) does not match"
_SHAPES = "the function body depends on shapes, which predictions do not use"
EXPLANATIONS = (
    Explanation(
        "an invalid model of onnx 1.3.0; `onnx.checker` refuses it too, so the file stage reports it",
        "loads but refused",
        r"1\.3\.0/node/test_convtranspose_output_shape",
        r"Attribute output_shape has incorrect size",
        r"1\.(2[89]|3\d)\.\d+",
    ),
    Explanation(
        _SHAPES,
        "unknown",
        r"1\.\d+\.\d+/node/test_causal_conv_with_state_\w+",
        "",
        r"1\.(3[2-9]|[4-9]\d)\.\d+",
    ),
    Explanation(
        _SHAPES,
        "unknown",
        r"ai\.onnx/CausalConvWithState\(27\)@.+",
        "",
        r"1\.(3[2-9]|[4-9]\d)\.\d+",
        corpus=FUZZ,
    ),
    Explanation(
        "the output type is not declared, and the runtime's schema does not determine it",
        "unknown",
        r"com\.microsoft/GatherPacked\(1\)@.+ untyped",
        "",
        r"1\.(3[2-9]|[4-9]\d)\.\d+",
        corpus=FUZZ,
    ),
    Explanation(
        _CAST,
        "loads but refused",
        r"ai\.onnx/Attention\((23|24)\)@\d+ T1=tensor\(float16\) T2=tensor\(float16\) U=tensor\(float\) full typed",
        _CAST_TEXT,
        r"1\.2[3-8]\.\d+",
        corpus=PAIRS,
    ),
    Explanation(
        f"{_CAST}; its constants are not folded at this level",
        "loads but refused",
        r"1\.\d+\.\d+/node/test_attention_\w+_expanded",
        _CAST_TEXT,
        r"1\.2[3-8]\.\d+",
        optimization=("disabled",),
    ),
)


def explanation(disagreement: Disagreement) -> Explanation | None:
    """Return the explanation for a disagreement; None if there is none."""
    return next((each for each in EXPLANATIONS if each.covers(disagreement)), None)


def unexplained(disagreements: Iterable[Disagreement]) -> list[Disagreement]:
    """Return the disagreements that fail the suite. A wrongly predicted refusal is never accepted."""
    return [
        disagreement
        for disagreement in disagreements
        if disagreement.kind == "refused but loads" or explanation(disagreement) is None
    ]


def idle(comparisons: Sequence[Comparison]) -> list[Explanation]:
    """Return the explanations that apply to these releases but are unused."""
    explained = [explanation(disagreement) for comparison in comparisons for disagreement in comparison.disagreements]
    return [
        each
        for each in EXPLANATIONS
        if each not in explained
        and any(each.concerns(made.corpus, made.optimization, made.release) for made in comparisons)
    ]
