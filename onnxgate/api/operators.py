"""Support of one operator: which releases implement it, as `onnxgate support` shows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onnxgate.api.errors import ArgumentError, raise_argument_errors, require_type
from onnxgate.support.answers.operator_answers import OperatorSupport, SupportSpan, VersionSupport, list_ranges

DEFAULT_DOMAIN = "ai.onnx"


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """Which releases support an operator. `str` returns the answer as a sentence."""

    engine: str  # name of the engine, such as "onnxruntime"
    domain: str  # "ai.onnx" for the default domain
    operator: str  # name of the operator
    releases: tuple[str, ...]  # the releases that match the requirement, in ascending order
    spans: tuple[SupportSpan, ...]  # how these releases run the operator at their best opset; ascending
    versions: tuple[VersionSupport, ...]  # support of each version of the operator, and of each type; ascending
    summary: str  # the answer as a sentence

    @property
    def supported(self) -> tuple[str, ...]:
        """The releases that support the operator."""
        return tuple(
            release
            for span in self.spans
            if span.is_supported
            for release in self.releases[self.releases.index(span.since) : self.releases.index(span.until) + 1]
        )

    @property
    def is_supported_by_all(self) -> bool:
        """Whether all releases support the operator."""
        return self.supported == self.releases

    @property
    def since(self) -> str:
        """First release of the newest range that supports the operator; "" if no release does."""
        return self._find_newest_range()[0]

    @property
    def until(self) -> str:
        """Last release that supports the operator; "" if no release does."""
        return self._find_newest_range()[1]

    def _find_newest_range(self) -> tuple[str, str]:
        """Return the ends of the newest range of consecutive releases that support the operator."""
        ranges = list_ranges((span for span in self.spans if span.is_supported), self.releases)
        return ranges[-1] if ranges else ("", "")

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        name = f"{self.domain}.{self.operator}".removeprefix(f"{DEFAULT_DOMAIN}.")
        return f"<Support of {name} by {self.engine}: since={self.since!r}, until={self.until!r}>"


def support(
    operator: str,
    *,
    types: str | Mapping[str, str] = "",
    opset: int | None = None,
    domain: str | None = None,
    requirement: str = "onnxruntime",
) -> Support:
    """
    Return which releases support an operator, as `onnxgate support` does.

    `types` is an element type such as `float16`, or a mapping from type parameters to types, such as
    `{"T1": "float16"}`. Without `domain`, it is `ai.onnx` if this domain has the operator. `opset` is an opset of
    `domain`, or of `ai.onnx` if no domain is given; an operator of another domain is then described at its best opset.
    `requirement` selects releases, as in `onnxruntime>=1.18`.

    Raises:
        ArgumentError: a name, opset or requirement is not known, or the table of the engine contains no operators.
        TypeError: an argument has another type.
    """
    from onnxgate.commands.support import Question, answer
    from onnxgate.formats.operator_support import Scope
    from onnxgate.support.limits import list_table_engines

    for name, value in (("operator", operator), ("requirement", requirement)):
        require_type(name, value, str)
    require_type("types", types, str, Mapping)
    require_type("opset", 0 if opset is None else opset, int)
    require_type("domain", "" if domain is None else domain, str)
    prefix = "" if domain is None else f"{domain or DEFAULT_DOMAIN}."
    label = prefix + operator.removeprefix(prefix)
    named = {"": types} if isinstance(types, str) else types
    for parameter, kind in named.items():
        require_type(f"types[{parameter!r}]", kind, str)
    is_engine = requirement in list_table_engines()
    question = Question(
        operator=label,
        types=tuple(f"{parameter}={kind}".removeprefix("=") for parameter, kind in named.items() if kind),
        opset=opset,
        runtime=None if is_engine else requirement,
        engine=requirement if is_engine else "",
    )
    with raise_argument_errors():
        answered = answer(question)
    found = _select_domain(label, answered.operators)
    return Support(
        engine=found.engine,
        domain=found.domain,
        operator=found.operator,
        releases=answered.releases,
        spans=found.find_best_spans(answered.releases),
        versions=found.versions,
        summary=Scope(answered).summarize(found),
    )


def _select_domain(label: str, operators: tuple[OperatorSupport, ...]) -> OperatorSupport:
    default = next((it for it in operators if it.domain == DEFAULT_DOMAIN), None)
    if default is None and len(operators) > 1:
        domains = " and ".join(f"`{it.domain}`" for it in operators)
        raise ArgumentError(f"`{label}` exists in {domains}; pass `domain`")
    return default or operators[0]
