"""Every disagreement that is understood and left: what no entry here covers fails the suite, as an idle entry does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from tests.conformance.comparing import Comparison, Disagreement, Kind
from tests.conformance.judging import BACKEND


@dataclass(frozen=True, slots=True)
class Explanation:
    """Disagreements of one kind by name, by what the runtime says, and by release. `why` is the cause."""

    why: str
    kind: Kind
    name: str
    text: str
    first: str
    last: str
    corpus: str = BACKEND
    optimization: tuple[str, ...] = ("all",)

    def covers(self, each: Disagreement) -> bool:
        """Whether this is why."""
        return (
            self.concerns(each.corpus, each.optimization, each.release)
            and each.kind == self.kind
            and re.fullmatch(self.name, each.name) is not None
            and re.search(self.text, each.text) is not None
        )

    def concerns(self, corpus: str, optimization: str, release: str) -> bool:
        """Whether the disagreement is to be seen there."""
        within = Version(self.first) <= Version(release) <= Version(self.last)
        return corpus == self.corpus and optimization in self.optimization and within


EXPLANATIONS = (
    Explanation(
        "the models of onnx 1.18.0 give Range one-element vectors where scalars are specified, which onnx 1.19 mended; "
        "`onnx.checker` lets them pass, and the runtime too until it has folded constants",
        "loads but refused",
        r"1\.18\.0/node/test_rms_normalization_(default_axis|[234]d_axis\w+)_expanded",
        r"Input to 'Range' op should be scalars",
        "1.23.0",
        "1.31.1",
    ),
    Explanation(
        "an invalid model of onnx 1.3.0, which `onnx.checker` refuses too: the file stage says so",
        "loads but refused",
        r"1\.3\.0/node/test_convtranspose_output_shape",
        r"Attribute output_shape has incorrect size",
        "1.28.0",
        "1.31.1",
        optimization=("all", "disabled"),
    ),
    Explanation(
        "the optimizer of 1.25 makes a FusedMatMul of double MatMul and Transpose, and has no kernel for it",
        "loads but refused",
        r"1\.22\.0/node/test_flexattention_double_expanded_ver26",
        r"Failed to find kernel for com\.microsoft\.FusedMatMul\(1\)",
        "1.25.0",
        "1.25.1",
    ),
)


def explanation(disagreement: Disagreement) -> Explanation | None:
    """Why predicted and real differ, None where nobody knows yet."""
    return next((each for each in EXPLANATIONS if each.covers(disagreement)), None)


def unexplained(disagreements: Iterable[Disagreement]) -> list[Disagreement]:
    """What fails the suite; that a model is said to be refused and loads can never be explained away."""
    return [each for each in disagreements if each.kind == "refused but loads" or explanation(each) is None]


def idle(comparisons: Sequence[Comparison]) -> list[Explanation]:
    """Explanations of which nothing is left to explain on these releases."""
    found = [explanation(each) for comparison in comparisons for each in comparison.disagreements]
    return [
        each
        for each in EXPLANATIONS
        if each not in found
        and any(each.concerns(made.corpus, made.optimization, made.release) for made in comparisons)
    ]
