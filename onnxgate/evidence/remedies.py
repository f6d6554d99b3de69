"""What is said of a refused operation: the hit that the rules about operators share, and ways out in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.evidence.support import RefusedOperation
from onnxgate.findings import Hit, unversioned
from onnxgate.support.ways import AtOpset, Expanded, Imported, Raised, Replaced, Retyped, Way, With, Without

RECURRENT = ("GRU", "LSTM", "RNN")


def hits(subject: RefusedOperation, rule: str, otherwise: str, *, follows_from: Sequence[str] = ()) -> Iterator[Hit]:
    """The hit of the rule that the refusal is of; `otherwise` is the fix where no way out was found."""
    if subject.rule != rule:
        return
    yield Hit(
        subject.place,
        f"{subject.problem}: {subject.nodes.words}",
        model=subject.model,
        node=subject.nodes.name,
        fix=fix(subject, otherwise),
        runtime=subject.runtime,
        about=subject.problem,
        detail=subject.detail,
        works_since=subject.works_since,
        works_until=subject.works_until,
        follows_from=tuple(follows_from) if subject.opset_too_new else (),
        identity=unversioned(subject.problem),
    )


def fix(subject: RefusedOperation, otherwise: str) -> str:
    """The ways out, the best first; what to do where none was found."""
    return ", or ".join(_words(way, subject) for way in subject.ways) or otherwise


def _words(way: Way, subject: RefusedOperation) -> str:
    match way:
        case AtOpset(domain, version, whole):
            what = "all of the model" if whole else "this operator"
            known = "" if subject.everywhere else " with support data"
            return f"export at opset {version}{_of(domain)}, where all its runtimes{known} implement {what}"
        case Retyped(parameter, to, exact, back):
            result = " and the result back" if back else ""
            return f"cast {_argument(parameter)} to `{to}`{result}{'' if exact else ', which may lose values'}"
        case Expanded():
            return "write it as the operators that ONNX defines it by"
        case Replaced(domain, name, _, attributes):
            given = ", ".join(f'`{attribute}` = "{value}"' for attribute, value in attributes)
            return f"use `{_label(domain, name)}` in its place{f' with {given}' if given else ''}"
        case Imported(domain, version):
            where = "the local function" if subject.nodes.function else "the model"
            return f"import version {version} of `{domain}` in {where}"
        case Raised(release):
            return f"raise the target to {release}"
        case With(attributes):
            return " and ".join(f"give it `{name}` ({kind})" for name, kind in attributes)
        case Without(attribute):
            return f"leave `{attribute}` out{_instead(subject, attribute)}"


def _of(domain: str) -> str:
    return "" if domain == "ai.onnx" else f" of `{domain}`"


def _label(domain: str, name: str) -> str:
    return name if domain == "ai.onnx" else f"{domain}.{name}"


def _argument(parameter: str) -> str:
    return "its argument" if "(" in parameter else f"`{parameter}`"


def _instead(subject: RefusedOperation, attribute: str) -> str:
    """What keeps the meaning where an attribute is left out."""
    if subject.operator in RECURRENT and attribute == "layout":
        return " and transpose what goes in and comes out to time first"
    return ", if the model means the same without it"
