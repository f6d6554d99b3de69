"""Answers about support for tests. They do not depend on the shipped tables."""

from __future__ import annotations

from onnxgate.support.answers.operator_answers import (
    NewestVersions,
    OperatorChange,
    OperatorSupport,
    ReleaseDifference,
    ReleaseSupport,
    Source,
    SupportAnswer,
    SupportSpan,
    TypeSupport,
    VersionSupport,
)

RELEASES = ("1.16.3", "1.17.0", "1.17.3", "1.18.0", "1.18.1")
TOO_NEW = SupportSpan("1.16.3", "1.16.3", "none", "opset 20 is too new")
BODY, KERNEL = SupportSpan("1.17.0", "1.17.3", "function"), SupportSpan("1.18.0", "1.18.1", "kernel")
ALL_CAST = SupportSpan("1.16.3", "1.18.1", "cast")
ALL_KERNEL = SupportSpan("1.16.3", "1.18.1", "kernel")
REFUSED = SupportSpan("1.17.0", "1.18.1", "none", "there is no kernel for `Gelu(20)` with `T` = `tensor(double)`")
NEVER = (SupportSpan("1.16.3", "1.18.1", "none", "there is no kernel for `Old(1)`"),)


def tensor(parameter: str, name: str, *spans: SupportSpan) -> TypeSupport:
    """Return the support of one tensor type."""
    return TypeSupport(parameter, f"tensor({name})", spans)


def operator(*versions: VersionSupport, name: str = "Gelu", domain: str = "ai.onnx") -> OperatorSupport:
    """Return the support of an operator."""
    return OperatorSupport("onnxruntime", domain, name, versions)


GELU = VersionSupport(
    20,
    20,
    None,
    False,
    (TOO_NEW, BODY, KERNEL),
    (tensor("T", "float", TOO_NEW, BODY, KERNEL), tensor("T", "double", TOO_NEW, REFUSED)),
)
MICROSOFT_GELU = VersionSupport(
    1, 1, None, False, (ALL_KERNEL,), (tensor("T", "float", ALL_KERNEL), tensor("T", "float16", ALL_CAST))
)
OLD = VersionSupport(1, 1, 6, False, NEVER, (tensor("T", "float", *NEVER),))
OLDER = VersionSupport(7, 7, 8, False, (ALL_KERNEL,), (tensor("T", "float", ALL_KERNEL),))
BEFORE = VersionSupport(7, 7, 8, False, NEVER, (tensor("T", "float", *NEVER),))
BETWEEN = VersionSupport(9, 9, 9, False, (ALL_KERNEL,), (tensor("T", "float", ALL_KERNEL),))
AFTER = VersionSupport(10, 10, None, False, NEVER, (tensor("T", "float", *NEVER),))
DEPRECATED = VersionSupport(10, 10, None, True, NEVER, (tensor("T", "float", *NEVER),))
IN_LOOP = SupportSpan("1.16.3", "1.17.0", "unknown", "only in a `Loop`")
LIMITED = SupportSpan("1.17.3", "1.17.3", "kernel", "`position` must be constant")
MORE_LIMITED = SupportSpan("1.18.0", "1.18.1", "kernel", "not with two loops; `position` must be constant")
REFUSED_INPUT = SupportSpan("1.16.3", "1.18.1", "unknown", "only if no input of the model is a `tensor(int4)`")
CONDITIONAL = VersionSupport(
    1,
    1,
    None,
    False,
    (IN_LOOP, LIMITED, MORE_LIMITED),
    (tensor("T", "float", IN_LOOP, LIMITED, MORE_LIMITED), tensor("T", "int4", REFUSED_INPUT)),
)
SOURCES = tuple(Source(release, f"onnxruntime-{release}-cp311.whl", "sha256:" + "0f" * 32) for release in RELEASES)


def release(name: str, ir_version: int, opset: int, *, reads_links: bool = True) -> ReleaseSupport:
    """Return what a release accepts."""
    return ReleaseSupport(
        release=name,
        ir_version=ir_version,
        opsets={"ai.onnx": opset, "ai.onnx.ml": 3, "com.microsoft": 1},
        unreleased_opsets={"ai.onnx": opset + 1} if opset == 21 else {},
        external_data={"outside": True, "link": reads_links, "linked_model": True, "absolute": False},
        operators={"ai.onnx": 180, "com.microsoft": 60},
        refused_interface_types=("tensor(bfloat16)",) if opset == 21 else (),
    )


DESCRIBED = (
    release("1.16.3", 9, 19),
    release("1.17.0", 9, 20),
    release("1.17.3", 9, 20),
    release("1.18.0", 10, 21, reads_links=False),
    release("1.18.1", 10, 21, reads_links=False),
)


def answer(*operators: OperatorSupport) -> SupportAnswer:
    """Return the answer about operators on all releases."""
    return SupportAnswer(
        engine="onnxruntime",
        requirement="",
        releases=RELEASES,
        operators=operators,
        platform="linux x86_64",
        sources=SOURCES,
    )


def list_samples() -> dict[str, SupportAnswer]:
    """Return an answer of each kind, by name."""
    about = SupportAnswer(engine="onnxruntime", requirement="onnxruntime>=1.16.3", releases=RELEASES)
    return {
        "operator": answer(operator(GELU), operator(MICROSOFT_GELU, domain="com.microsoft")),
        "opsets": answer(operator(OLD, OLDER, DEPRECATED, name="Old")),
        "conditions": answer(operator(CONDITIONAL, name="Conditional")),
        "one opset": answer(operator(BEFORE, BETWEEN, AFTER, name="Narrow")),
        "releases": SupportAnswer(
            engine="onnxruntime", requirement="onnxruntime>=1.16.3", releases=RELEASES, described=DESCRIBED
        ),
        "release": SupportAnswer(
            engine="onnxruntime",
            requirement="onnxruntime==1.18.1",
            releases=("1.18.1",),
            described=DESCRIBED[-1:],
            platform="linux x86_64",
            sources=SOURCES[-1:],
        ),
        "newest": SupportAnswer(
            engine=about.engine,
            requirement=about.requirement,
            releases=RELEASES,
            described=DESCRIBED,
            newest=NewestVersions(9, {"ai.onnx": 19, "ai.onnx.ml": 3}),
        ),
        "opset": SupportAnswer(engine=about.engine, requirement="", releases=RELEASES, opset=20, described=DESCRIBED),
        "IR version": SupportAnswer(
            engine=about.engine, requirement="", releases=RELEASES, ir_version=10, described=DESCRIBED
        ),
        "versions": SupportAnswer(
            engine=about.engine, requirement="", releases=RELEASES, ir_version=9, opset=21, described=DESCRIBED[:3]
        ),
        "difference": SupportAnswer(
            engine="onnxruntime",
            requirement="",
            releases=("1.17.3", "1.18.0"),
            difference=ReleaseDifference(
                DESCRIBED[2],
                DESCRIBED[3],
                (
                    OperatorChange("added", ("ai.onnx.ml.TreeEnsemble",), ("schema 5",)),
                    OperatorChange("changed", ("Cast", "If"), ("schema 21", "kernel 19-20, 21+ for 19+")),
                ),
            ),
        ),
    }
