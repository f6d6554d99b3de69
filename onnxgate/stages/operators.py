"""One model's operators on each of its runtimes: what is refused, grouped by what it is refused for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.config.project import SelectedModel
from onnxgate.evidence.support import ExperimentalOperation, Nodes, RefusedOperation, Unpredicted
from onnxgate.findings import Place
from onnxgate.model.places import node_place
from onnxgate.stages.supported import Known
from onnxgate.support import releases
from onnxgate.support.match import CPU
from onnxgate.support.operations import Found, Miss, Prediction, Prepared, TypedNode
from onnxgate.support.predict import predict
from onnxgate.support.providers import providers_of
from onnxgate.support.signature import fault
from onnxgate.support.table import Implementation
from onnxgate.support.ways import Way

if TYPE_CHECKING:
    from onnxgate.support.search import Asked

Key = tuple[str, str, tuple[str, ...]]
EXTENSION = "an extension may register it; the runtime stage looks"
PROVIDER = "a provider of the target may have a kernel; the runtime stage looks"


@dataclass(frozen=True, slots=True)
class Model:
    """A model, and what places its nodes."""

    selected: SelectedModel
    place: Place
    root: Path  # git's root
    folder: Path  # the config's folder, which places are relative to

    @property
    def path(self) -> str:
        """The model's path, relative to the config's folder."""
        return self.selected.path


@dataclass(slots=True)
class Operators:
    """The model's operators, judged on one runtime after the other."""

    model: Model
    prepared: Prepared
    known: Sequence[Known]
    everywhere: bool  # there is no other runtime that the model is promised on
    _ways: dict[tuple[object, ...], tuple[tuple[Way, ...], str, str]] = field(default_factory=dict)
    _parents: dict[Key, str] | None = None

    def gather(self) -> tuple[list[object], dict[str, Prediction]]:
        """What each runtime refuses or leaves open, and the predictions themselves."""
        subjects: list[object] = []
        predictions = {}
        for each in self.known:
            prediction = honest(predict(self.prepared, each.implementation, each.limits, each.planned.providers), each)
            subjects += self._refused(each, prediction)
            subjects += self._unknown(each, prediction)
            if each.judged == "all" or prediction.verdict == "refused":
                predictions[each.name] = prediction
        return subjects, predictions

    def _refused(self, known: Known, prediction: Prediction) -> Iterator[RefusedOperation]:
        groups: dict[tuple[str, str], list[Found]] = {}
        for found in prediction.found:
            if found.miss is not None:
                groups.setdefault((found.miss.rule, found.miss.problem), []).append(found)
        for group in groups.values():
            miss, first = group[0].miss, group[0].node
            assert miss is not None
            ways, since, until = self._ways_out(miss, group)
            yield RefusedOperation(
                rule=miss.rule,
                model=self.model.path,
                place=self.place(first),
                runtime=known.name,
                problem=miss.problem,
                detail=miss.detail,
                operator=first.operation.label,
                domain=first.operation.domain,
                nodes=self.nodes(each.node for each in group),
                ways=ways,
                works_since=since,
                works_until=until,
                opset_too_new=first.operation.domain in prediction.opsets_too_new,
                everywhere=self.everywhere and all(each.whole is not None for each in self.known),
            )

    def _ways_out(self, miss: Miss, group: Sequence[Found]) -> tuple[tuple[Way, ...], str, str]:
        """The same for all runtimes, so that what they refuse alike is one finding."""
        from onnxgate.support.search import Missed, ways_out, works

        operations = tuple(dict.fromkeys(found.node.operation for found in group))
        key = (miss.rule, miss.problem, operations)
        if key not in self._ways:
            every = [each for name in releases.known() if (each := releases.implementation(name)) is not None]
            since, until = works(operations, every)
            missed = Missed(miss, operations, since)
            others = [each.limits for each in self.known if each.whole is None]
            self._ways[key] = ways_out(missed, self.prepared, self._asked(), others), since, until
        return self._ways[key]

    def _asked(self) -> list[Asked]:
        from onnxgate.support.search import Asked

        return [Asked(each.whole, each.limits, each.planned.providers) for each in self.known if each.whole is not None]

    def _unknown(self, known: Known, prediction: Prediction) -> Iterator[Unpredicted]:
        """What cannot be told, in one sentence: the first such node, and how many others."""
        open_ones = [found for found in prediction.found if found.miss is None]
        if not open_ones:
            return
        first = open_ones[0]
        yield Unpredicted(
            place=self.place(first.node),
            what=f"is not predicted in full: {first.unknown}: {self.nodes(each.node for each in open_ones).words}",
            runtime=known.name,
            model=self.model.path,
            node=first.node.name,
            fix="run the runtime stage: it loads the model there",
            follows_from=("unknown-domain", "unknown-operator"),
        )

    def experimental(self, known: Known) -> tuple[ExperimentalOperation, ...]:
        """The operators that a release calls experimental."""
        groups: dict[str, list[TypedNode]] = {}
        some = any(_experimental_name(node, known.implementation) for node in self.prepared.kinds)
        for node in self.prepared.every() if some else ():
            name = _experimental_name(node, known.implementation)
            if name:
                groups.setdefault(name, []).append(node)
        return tuple(
            ExperimentalOperation(self.place(nodes[0]), name, self.nodes(nodes)) for name, nodes in groups.items()
        )

    # Nodes in words

    def place(self, node: TypedNode) -> Place:
        """The source line that made a node, else where the model stands."""
        return node_place(node.proto, self.model.root, self.model.folder) or self.model.place

    def nodes(self, nodes: Iterable[TypedNode]) -> Nodes:
        """Nodes in words: the first one, and how many others."""
        distinct: dict[Key, TypedNode] = {}
        for node in nodes:
            distinct.setdefault(_key(node), node)
        first = next(iter(distinct.values()))
        output = next(filter(None, first.proto.output), "")
        return Nodes(first.name, output, len(distinct) - 1, first.within, self._parent(first))

    def _parent(self, node: TypedNode) -> str:
        """The node in whose subgraph a node is."""
        if self._parents is None:
            self._parents = dict(_parents(self.prepared.nodes, ""))
        return self._parents.get(_key(node), "")


def _key(node: TypedNode) -> Key:
    return node.within, node.name, tuple(node.proto.output)


def _parents(nodes: Iterable[TypedNode], parent: str) -> Iterator[tuple[Key, str]]:
    for node in nodes:
        yield _key(node), parent
        inside = "" if node.calls else node.name or next(filter(None, node.proto.output), "")
        yield from _parents(node.inner, inside)


def _experimental_name(node: TypedNode, implementation: Implementation | None) -> str:
    """The operator with its version, where the release calls its schema experimental; else ""."""
    if node.calls or implementation is None:
        return ""
    operation = node.operation
    operator = implementation.operator(operation.domain, operation.name)
    schema = operator.schema(operation.version or 1) if operator is not None else None
    return f"{operation.label}({schema.since})" if schema is not None and schema.experimental else ""


def honest(prediction: Prediction, known: Known) -> Prediction:
    """The prediction without what is not known of this runtime: what extensions register, what other kernels do."""
    if known.implementation is None:
        return prediction
    found = tuple(_doubted(each, known, known.implementation) for each in prediction.found)
    return replace(prediction, found=tuple(each for each in found if each is not None))


def _doubted(found: Found, known: Known, implementation: Implementation) -> Found | None:
    if found.miss is None:
        return found if known.judged == "all" else None
    if known.planned.extensions and found.miss.rule in ("unknown-domain", "unknown-operator"):
        return Found(found.node, None, f"{found.miss.problem}, but {EXTENSION}")
    if not _is_of_kernels(found, implementation):
        return found
    if known.judged == "schemas":
        return None
    if set(known.planned.providers) - {CPU} - providers_of(implementation):
        return Found(found.node, None, f"{found.miss.problem}, but {PROVIDER}")
    return found


def _is_of_kernels(found: Found, implementation: Implementation) -> bool:
    """Whether a miss is about a release's kernels, not about its schemas."""
    if found.miss is None or found.miss.rule not in ("missing-kernel", "attribute-unsupported"):
        return False
    operation = found.node.operation
    operator = implementation.operator(operation.domain, operation.name)
    schema = operator.schema(operation.version or 1) if operator is not None else None
    return schema is not None and fault(operation, schema) is None
