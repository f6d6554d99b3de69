"""Every disagreement that is understood and left: what no entry here covers fails the suite, as an idle entry does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.conformance.comparing import Disagreement, Kind
from tests.conformance.judging import BACKEND


@dataclass(frozen=True, slots=True)
class Explanation:
    """Disagreements of one kind by name and by what the runtime says. `why` is the cause."""

    corpus: str
    kind: Kind
    name: re.Pattern[str]
    text: re.Pattern[str]
    why: str

    def covers(self, corpus: str, disagreement: Disagreement) -> bool:
        """Whether this is why."""
        return (
            (corpus, disagreement.kind) == (self.corpus, self.kind)
            and self.name.fullmatch(disagreement.name) is not None
            and self.text.search(disagreement.text) is not None
        )


EXPLANATIONS = (
    Explanation(
        BACKEND,
        "loads but refused",
        re.compile(r"1\.18\.0/node/test_rms_normalization_(default_axis|[234]d_axis\w+)_expanded"),
        re.compile(r"Input to 'Range' op should be scalars"),
        "the models of onnx 1.18.0 give Range one-element vectors where scalars are specified, which onnx 1.19 mended "
        "and `onnx.checker` lets pass",
    ),
    Explanation(
        BACKEND,
        "loads but refused",
        re.compile(r"1\.3\.0/node/test_convtranspose_output_shape"),
        re.compile(r"Attribute output_shape has incorrect size"),
        "an invalid model of onnx 1.3.0, which `onnx.checker` refuses too: the file stage says so",
    ),
)


def explanation(corpus: str, disagreement: Disagreement) -> Explanation | None:
    """Why predicted and real differ, None where nobody knows yet."""
    return next((each for each in EXPLANATIONS if each.covers(corpus, disagreement)), None)


def unexplained(corpus: str, disagreements: Iterable[Disagreement]) -> list[Disagreement]:
    """What fails the suite; that a model is said to be refused and loads can never be explained away."""
    return [each for each in disagreements if each.kind == "refused but loads" or explanation(corpus, each) is None]
