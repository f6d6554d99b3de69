"""What nodes of a refused model say when they are loaded alone.

The model's own load decides first: a model that loads at every level contradicts all that predicted its refusal, and no
node of it is loaded alone. Of one that is refused, each predicted operation is:

- *confirmed* where it is refused alone, or where the model's own refusal names it;
- *contradicted* where it loads alone at every level at which the model is refused, and where each of these refusals has
  another cause that is known. Where nothing else explains a refusal, a node that loads alone proves nothing: what it is
  refused for may be what surrounds it, and then the prediction stays as it is;
- left open in all other cases: it crashed, could not be cut out, or the stamps of the model are refused even with it.

Refusals that depend on shapes and constants count for less, since a node alone may lack them: they count where they
were predicted as such, and where the model is refused in the same words. Source: 15,260 nodes of 980 models of ONNX's
own tests, on ONNX Runtime 1.16.3 and 1.31.1: of the models that load, not one has a node that is refused alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onnxgate.evidence.runtime import Alone
from onnxgate.evidence.support import Nodes
from onnxgate.model.places import named_node, node_place
from onnxgate.plan import PlannedRuntime
from onnxgate.runtimes.jobs import Completed, Failure, Observation, Optimization, Refused
from onnxgate.stages.alone import Single
from onnxgate.stages.runtime import NOT_USED, Ran, RunModel
from onnxgate.stages.supported import known_support
from onnxgate.support.operations import Operation, Prediction, TypedNode
from onnxgate.texts.families import family, fix_anywhere, gist, node_name, unsupported

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.support.harvested import Kept

OF_FILE = frozenset({"protobuf", "no_graph", "no_file", "raw_size", "locale"})
"""Families of texts about the file, or about the machine: no node is the cause."""
OF_MODEL = OF_FILE | {"ir", "opset", "structure", "ext_missing", "ext_range", "ext_policy"}
"""Families of texts about the model as a whole."""
OF_CONTEXT = frozenset({"shape_inference", "constructor", ""})
"""Families of texts that may be about what a node alone lacks."""
FAMILIES_OF: Mapping[str, frozenset[str]] = {
    "unknown-domain": frozenset({"no_op", "no_import"}),
    "unknown-operator": frozenset({"no_op"}),
    "deprecated-operator": frozenset({"deprecated"}),
    "missing-kernel": frozenset({"no_kernel"}),
    "type-mismatch": frozenset({"type"}),
    "attribute-unsupported": frozenset({"attribute", "arity", "constructor", "shape_inference"}),
}
"""How a runtime says what a rule predicts."""
Outcome = Literal["refused", "loads", "unknown"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """That the model is refused, at one level of one runtime."""

    level: Optimization
    failure: Failure
    node: str  # the node of the model that the text names

    @property
    def gist(self) -> tuple[str, ...]:
        """What the text says."""
        return gist(self.failure.text)

    @property
    def family(self) -> str:
        """What it is about."""
        return self.gist[0]

    @property
    def is_of_model(self) -> bool:
        """Whether no single node is the cause."""
        return self.failure.memory or self.family in OF_MODEL

    @property
    def is_of_file(self) -> bool:
        """Whether there is nothing to be learnt from nodes."""
        return self.failure.memory or self.family in OF_FILE


@dataclass(frozen=True, slots=True)
class Refusing:
    """One runtime that refuses the model, and what was predicted of it."""

    refusals: tuple[Refusal, ...]
    prediction: Prediction | None
    in_full: bool  # its kernels are known

    @property
    def is_hopeless(self) -> bool:
        """Whether nodes alone would be refused for the same: for the file, the machine, or the opset that all need."""
        domains = self.prediction.opsets_too_new if self.prediction else ()
        said = any(each.family == "opset" and "ai.onnx" in each.gist for each in self.refusals)
        return said or "ai.onnx" in domains or all(each.is_of_file for each in self.refusals)

    @property
    def is_ir_refused(self) -> bool:
        """Whether a node must be stamped with an older IR version than the model."""
        return any(each.family == "ir" for each in self.refusals)

    @property
    def levels(self) -> tuple[Optimization, ...]:
        """Where the model is refused."""
        return tuple(each.level for each in self.refusals)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a node alone, over all levels at which the model is refused."""

    outcome: Outcome
    failure: Failure | None = None

    @property
    def gist(self) -> tuple[str, ...]:
        """What its refusal says; empty where there is none."""
        return gist(self.failure.text) if self.outcome == "refused" and self.failure is not None else ()


Seen = Mapping[Single, Loaded]


def refusing(
    ran: Iterable[Ran],
    proto: ModelProto,
    predictions: Mapping[PlannedRuntime, Prediction | None],
    kept: Mapping[str, Kept],
) -> dict[PlannedRuntime, Refusing]:
    """The runtimes that refuse to load the model, with what they say at each level."""
    said: dict[str, tuple[Refusal, ...]] = {}
    for each in ran:
        if isinstance(each.observation, Refused) and _tells_little(each.observation.failure):
            refusal = _refusal(each.job.optimization, each.observation.failure, proto)
            said[each.runtime] = (*said.get(each.runtime, ()), refusal)
    return {
        planned: Refusing(said[planned.name], prediction, prediction is not None and _is_known(planned, kept))
        for planned, prediction in predictions.items()
        if planned.name in said
    }


def _tells_little(failure: Failure) -> bool:
    """Whether there may be more to learn from nodes alone: not where the text lists all that is not supported."""
    return failure.type != NOT_USED and not unsupported(failure.text)


def _refusal(level: Optimization, failure: Failure, proto: ModelProto) -> Refusal:
    name = node_name(failure.text) or ""
    return Refusal(level, failure, name if named_node(proto, name) is not None else "")


def _is_known(planned: PlannedRuntime, kept: Mapping[str, Kept]) -> bool:
    known = known_support(planned, kept)
    return known is not None and known.judged == "all"


def loaded(observations: Sequence[Observation]) -> Loaded:
    """The outcome of all levels: refused at one of them is refused."""
    for each in observations:
        if isinstance(each, Refused):
            told = not each.failure.memory and family(each.failure.text) not in OF_MODEL
            return Loaded("refused" if told else "unknown", each.failure)
    every = bool(observations) and all(isinstance(each, Completed) for each in observations)
    return Loaded("loads" if every else "unknown")


def predicted(refusing: Refusing, singles: Sequence[Single]) -> list[Single]:
    """What is to be witnessed: the first node of each operation that is predicted to be refused."""
    missed = {operation for operations in _claims(refusing).values() for operation in operations}
    first: dict[Operation, Single] = {}
    for each in singles:
        if each.operation in missed:
            first.setdefault(each.operation, each)
    return list(first.values())


def unpredicted(refusing: Refusing, singles: Sequence[Single], seen: Seen) -> list[Single]:
    """What else is to be tried: all other nodes, where kernels are not known, or where nothing tells which it is."""
    others = [each for each in singles if each not in seen]
    if not refusing.in_full:
        return others
    told = _witnesses(refusing, singles, seen)
    lost = (each for each in refusing.refusals if not each.is_of_model and not each.node)
    return others if any(not any(other.is_cause(each) for other in told) for each in lost) else []


def judge(refusing: Refusing, singles: Sequence[Single], seen: Seen, model: RunModel) -> tuple[Alone, ...]:
    """All that the nodes alone say of one runtime's refusal."""
    told = _witnesses(refusing, singles, seen)
    claimed = {single for each in told for single in each.singles}
    rest = [_Witness((each,), seen[each]) for each in singles if each in seen and each not in claimed]
    every = [*told, *(each for each in rest if each.is_refused(refusing))]
    return tuple(_evidence(each, every, refusing, model) for each in every)


@dataclass(frozen=True, slots=True, eq=False)
class _Witness:
    """One claim, or one kind of node that nobody predicted, with what it did alone."""

    singles: tuple[Single, ...]
    loaded: Loaded
    rule: str = ""
    claim: str = ""
    is_all: bool = False  # no other node of the model has one of these operators

    @property
    def nodes(self) -> list[TypedNode]:
        return [node for single in self.singles for node in single.nodes]

    def is_refused(self, refusing: Refusing) -> bool:
        """Whether it is refused alone for what it is, and not for what it lacks, or for what is inside it."""
        said = self.loaded.gist
        if not said or (self.singles[0].first.inner and self.singles[0].operation.name not in said):
            return False
        in_context = said[0] in OF_CONTEXT and self.rule != "attribute-unsupported"
        return not in_context or any(said == each.gist for each in refusing.refusals)

    def is_named(self, refusal: Refusal) -> bool:
        """Whether the refusal says what was predicted, of one of these nodes or of their operator."""
        if refusal.family not in FAMILIES_OF.get(self.rule, ()):
            return False
        if refusal.node:
            return refusal.node in {node.name for node in self.nodes}
        return self.is_all and any(each.operation.name in refusal.gist for each in self.singles)

    def is_cause(self, refusal: Refusal) -> bool:
        """Whether the model is refused for what these nodes are refused for."""
        return self.loaded.gist == refusal.gist or self.is_named(refusal)


def _witnesses(refusing: Refusing, singles: Sequence[Single], seen: Seen) -> list[_Witness]:
    """Each claim with what its nodes did."""
    made = []
    for (rule, claim), operations in _claims(refusing).items():
        own = tuple(each for each in singles if each.operation in operations)
        if own:
            names = {(each.operation.domain, each.operation.name) for each in own}
            same = [each for each in singles if (each.operation.domain, each.operation.name) in names]
            results = _all_of([seen[each] for each in own if each in seen])
            made.append(_Witness(own, results, rule, claim, len(same) == len(own)))
    return made


def _claims(refusing: Refusing) -> dict[tuple[str, str], list[Operation]]:
    """What is predicted to be refused: each finding with its operations."""
    claims: dict[tuple[str, str], list[Operation]] = {}
    for found in refusing.prediction.found if refusing.prediction else ():
        if found.miss is not None:
            claims.setdefault((found.miss.rule, found.miss.problem), []).append(found.node.operation)
    return claims


def _all_of(results: Sequence[Loaded]) -> Loaded:
    refused = next((each for each in results if each.outcome == "refused"), None)
    if refused is not None:
        return refused
    return Loaded("loads" if results and all(each.outcome == "loads" for each in results) else "unknown")


def _evidence(each: _Witness, every: Sequence[_Witness], refusing: Refusing, model: RunModel) -> Alone:
    outcome = _outcome(each, every, refusing)
    first = each.nodes[0]
    failure = each.loaded.failure if outcome == "refused" else None
    causing = [refusal for refusal in refusing.refusals if outcome == "refused" and each.is_cause(refusal)]
    return Alone(
        operator=first.operation.label,
        words=Nodes(first.name, next(filter(None, first.proto.output), ""), len(each.nodes) - 1, first.within).words,
        outcome=outcome,
        node=first.name,
        place=node_place(first.proto, model.root, model.folder),
        rule=each.rule,
        claim=each.claim,
        explains=tuple(refusal.level for refusal in causing),
        failure=failure,
        family=family(failure.text) if failure else "",
        fix=fix_anywhere(failure.text) if failure else "",
    )


def _outcome(each: _Witness, every: Sequence[_Witness], refusing: Refusing) -> Outcome:
    if each.is_refused(refusing) or any(each.is_named(refusal) for refusal in refusing.refusals):
        return "refused"
    if each.loaded.outcome == "loads" and all(_is_told(refusal, each, every) for refusal in refusing.refusals):
        return "loads"
    return "unknown"


def _is_told(refusal: Refusal, witness: _Witness, every: Iterable[_Witness]) -> bool:
    """Whether the refusal has a cause that is known; this witness, which loads, is none."""
    named = {node.name for node in witness.nodes}
    elsewhere = bool(refusal.node) and refusal.node not in named
    return refusal.is_of_model or elsewhere or any(each.is_cause(refusal) for each in every)
