"""Answers to questions about support: which releases implement an operator, by version, type and provider.

The command `support`, the compatibility page and `onnxgate.api` read these values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

SupportWay = Literal["kernel", "converted", "function", "cast", "folded", "unknown", "none"]
"""How a release runs an operator, the best way first: with a kernel, with the operator's function body, with a kernel
between inserted casts to float, or by removing the node while it loads the model. "converted": the engine has no
kernels of ONNX operators, but converts them. "none": it refuses the model."""
WAYS: tuple[SupportWay, ...] = get_args(SupportWay)
SUPPORTED_WAYS = frozenset(WAYS) - {"unknown", "none"}


class SupportSpan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive known releases that all run an operator in the same way. Both ends are included."""

    since: str  # exact release
    until: str  # exact release; the newest one in question if support has not ended
    way: SupportWay  # how they run the operator; "none": they refuse the model
    reason: str = ""  # why the releases refuse the operator, why this is unknown, or what limits their support

    @property
    def is_supported(self) -> bool:
        """Whether the releases run the operator."""
        return self.way in SUPPORTED_WAYS


def join_spans(spans: Iterable[SupportSpan], *, with_reasons: bool) -> tuple[SupportSpan, ...]:
    """Join consecutive spans with the same way, and the same reason if this matters.

    The reason for which support is not known always matters.
    """
    groups = itertools.groupby(spans, key=lambda it: (it.way, it.reason if with_reasons or it.way == "unknown" else ""))
    joined = ((way, reason, list(members)) for (way, reason), members in groups)
    return tuple(SupportSpan(members[0].since, members[-1].until, way, reason) for way, reason, members in joined)


def list_ranges(spans: Iterable[SupportSpan], releases: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first and the last of consecutive releases that are in spans; `releases` are those of the answer."""
    ranges: list[tuple[str, str]] = []
    for span in spans:
        if ranges and releases.index(ranges[-1][1]) + 1 == releases.index(span.since):
            ranges[-1] = ranges[-1][0], span.until
        else:
            ranges.append((span.since, span.until))
    return ranges


class TypeSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Releases that accept one type for a type parameter of an operator, with at least one choice of other types."""

    parameter: str  # name of the constraint (`T`), or of an input or output if no type of the operator varies
    type: str  # as in ONNX schemas: "tensor(float16)"
    spans: tuple[SupportSpan, ...]  # ascending; together they cover all releases of the answer


class VersionSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Support of one version of an operator in models that import opset `first_opset` to `last_opset` of its domain.

    A version has several of these values if releases support it in different ways at different opsets, because
    function bodies depend on the opset. `spans` and `types` describe `first_opset`. At later opsets they are the same
    in releases that accept the opset.
    """

    version: int  # opset in which this version was added, also if the question is about an older one
    first_opset: int  # first opset to which this value applies
    last_opset: int | None  # last one, unless no newer version is known
    deprecated: bool  # whether this version is deprecated
    spans: tuple[SupportSpan, ...]  # the best way of any type, by release
    types: tuple[TypeSupport, ...]  # by type parameter
    fixed: dict[str, str] = {}  # types that the question fixes, by parameter

    @property
    def is_supported(self) -> bool:
        """Whether a release supports this version."""
        return any(span.is_supported for span in self.spans)

    def __hash__(self) -> int:
        return hash((self.version, self.first_opset, self.spans, self.types))  # without the dictionary


class OperatorSupport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Support of one operator by the releases of an engine that the question is about."""

    engine: str  # inference engine
    domain: str  # domain of the operator; "ai.onnx" for the default domain
    operator: str  # name without the domain
    versions: tuple[VersionSupport, ...]  # ascending
    provider: str = "CPUExecutionProvider"  # execution provider whose kernels count
    ai_onnx: int | None = None  # opset of ai.onnx in question, if `domain` is another one
    opset_limits: dict[str, int] = {}  # by release, if it accepts only the first opsets of a version

    @property
    def is_supported(self) -> bool:
        """Whether a release supports a version of the operator."""
        return any(version.is_supported for version in self.versions)

    @property
    def label(self) -> str:
        """Name of the operator, preceded by its domain unless this is the default domain."""
        return self.operator if self.domain == "ai.onnx" else f"{self.domain}.{self.operator}"

    def find_best_spans(self, releases: Sequence[str]) -> tuple[SupportSpan, ...]:
        """Return how these releases, which are those of the answer, run the operator at their best opset."""
        if len(self.versions) == 1:
            return self.versions[0].spans
        positions = {release: index for index, release in enumerate(releases)}
        spans = [span for version in self.versions for span in version.spans]
        best = []
        for release, index in positions.items():
            containing = [it for it in spans if positions[it.since] <= index <= positions[it.until]]
            chosen = min(containing, key=lambda span: WAYS.index(span.way))
            best.append(SupportSpan(release, release, chosen.way, chosen.reason))
        return join_spans(best, with_reasons=False)


class NewestVersions(msgspec.Struct, frozen=True):
    """The newest IR version and opsets that all of several releases accept."""

    ir_version: int | None  # if there is a limit
    opsets: dict[str, int]  # by domain; a domain without an entry has no limit


ChangeKind = Literal["added", "removed", "changed"]


class OperatorChange(msgspec.Struct, frozen=True):
    """A change from one release to another that several operators have in common."""

    kind: ChangeKind  # kind of change
    operators: tuple[str, ...]  # sorted, such as "Gelu" or "com.microsoft.Gelu"
    details: tuple[str, ...]  # changes to schemas and kernels, such as "kernel 20+ (T +float)"


class ReleaseSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Versions, locations of external data and operators that a release accepts."""

    release: str  # exact release
    ir_version: int | None  # newest, if there is a limit
    opsets: dict[str, int]  # newest, by domain; a domain without an entry has no limit
    unreleased_opsets: dict[str, int]  # newer ones that require ALLOW_RELEASED_ONNX_OPSET_ONLY=0
    external_data: dict[str, bool] | None  # whether it reads external data there, if measured
    operators: dict[str, int] | None  # number of operators with a kernel, by domain, if known
    refused_interface_types: tuple[str, ...] = ()  # types that inputs and outputs of models cannot have

    def accepts(self, ir_version: int | None = None, opset: int | None = None) -> bool:
        """Return whether the release accepts an IR version and an opset of ai.onnx; None is any."""
        limits = (ir_version, self.ir_version), (opset, self.opsets.get("ai.onnx"))
        return all(version is None or newest is None or version <= newest for version, newest in limits)


class ReleaseDifference(msgspec.Struct, frozen=True):
    """Differences between two releases."""

    older: ReleaseSupport  # the first release
    newer: ReleaseSupport  # the second release
    changes: tuple[OperatorChange, ...]  # sorted by their first operators
    operator: str = ""  # operator in question; "": all


class Source(msgspec.Struct, frozen=True):
    """The package of a release that reported its kernels and schemas, or loaded the models from which they follow."""

    release: str  # exact release
    file: str  # name of the package
    digest: str  # of the package: `sha256:…`, or of npm packages, their integrity `sha512-…`


class SupportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to one question to `onnxgate support`. Only the fields that it is about have values."""

    version: int = 1  # version of this format
    engine: str  # inference engine
    requirement: str  # releases that the question is about; "" for all known releases
    releases: tuple[str, ...]  # the known releases that match the requirement, ascending
    operators: tuple[OperatorSupport, ...] = ()  # operator in question, in each domain that has it
    other_opsets: tuple[OperatorSupport, ...] = ()  # the same at all opsets, if no release supports it at the opset
    opset: int | None = None  # opset of ai.onnx, if the question is about one without an operator
    ir_version: int | None = None  # IR version, if the question is about one
    described: tuple[ReleaseSupport, ...] = ()  # releases in question
    newest: NewestVersions | None = None  # newest versions that all releases accept, if this is the question
    difference: ReleaseDifference | None = None  # differences between two releases, if this is the question
    platform: str = ""  # platform of the packages from which the answer comes
    sources: tuple[Source, ...] = ()  # packages from which the answer comes
