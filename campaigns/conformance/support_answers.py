"""Compare the answers of `onnxgate support` with real loads of models with one node.

    python -m campaigns.conformance.support_answers [--releases 1.18.1,1.32.0] [--operators 'Gelu|Reduce.*'] [--list]

The questions are about each type of each version of each operator that any release has: at its first and last opset, at
the newest opset that the release accepts and at the next one, and about random pairs of types. A supported answer
requires that one of the models loads, and an unsupported one that none does. Each node also occurs with its optional
inputs and with other types of results. The status is 1 if a difference has no explanation.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from onnx import AttributeProto, helper

from campaigns.conformance import corpora, environments, subgraphs
from campaigns.conformance.attribute_values import BY_KIND, OF_RESULT, values
from campaigns.conformance.real_loads import LEVELS, load_all
from campaigns.conformance.schemas import Formal
from campaigns.conformance.schemas import Schema as FuzzSchema
from campaigns.conformance.type_names import type_proto
from onnxgate.model.facts import DEFAULT_DOMAIN, model_domain
from onnxgate.support.answers.minimal_nodes import list_operations
from onnxgate.support.answers.operator_answers import SupportSpan, TypeSupport
from onnxgate.support.answers.queries import describe_operator, list_operators
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.operations import Operation
from onnxgate.support.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    FormalParameter,
    Operator,
    Schema,
    get_implementation,
    list_known_releases,
)

RELEASES = ("1.16.3", "1.18.1", "1.21.1", "1.24.4", "1.26.0", "1.28.0", "1.31.1", "1.32.0")
IR_VERSION = 8  # every release supports it
OPTIONS = {SINGLE: "Single", OPTIONAL: "Optional", VARIADIC: "Variadic", MIXED: "Variadic"}
EXPLANATIONS = {
    r"(If|Loop)\(": "the Identity in its body does not support the type",
    r"QMoE\(.*bfloat16": "a layout of the weights that kernels of bfloat16 require",
    r"(BeamSearch|GreedySearch|Sampling|WhisperBeamSearch)\(": "needs the graph of a decoder",
}
"""Operators whose nodes do not load for a reason that answers do not consider."""
EXCLUSIVE = frozenset({"sizes"})
"""Optional inputs that another one replaces."""
MAX_PAIRS = 6
"""Maximum number of pairs of types that are fixed together, per opset of an operator."""
MAX_RESULTS = 4
"""Maximum number of other types of a result that are tried."""
ANY_OPSET = 17
"""Opset of ai.onnx for operators of other domains; all releases accept it."""


class Case(NamedTuple):
    """One type of a version of an operator, with the names of the models that decide about it."""

    name: str
    way: str
    models: tuple[str, ...]
    reason: str = ""


class Question(NamedTuple):
    """An operator at an opset of its domain, in models with an opset of ai.onnx."""

    operator: Operator  # of the release, or of a newer one if the release lacks it
    opset: int
    ai_onnx: int | None
    is_refused: bool  # the release does not accept the opsets, so that one type is enough


def make_cases(release: str, operators: str) -> tuple[list[Case], dict[str, bytes]]:
    """Return the answers about a release, and the models by name."""
    cases: list[Case] = []
    models: dict[str, bytes] = {}
    for domain, name in list_operators():
        if not re.fullmatch(operators, name):
            continue
        for question in _list_questions(domain, name, release):
            for case, found in _list_cases(question, release):
                cases.append(case)
                models |= found
    return cases, models


def _list_questions(domain: str, name: str, release: str) -> Iterator[Question]:
    """Yield the first and last opset of each version, and the newest opset of the release with the one after it."""
    limits = get_limits(release)
    newest = {} if limits is None else limits.opsets
    known = [it for it in map(get_implementation, list_known_releases()) if it is not None]
    found = [operator for it in known if (operator := it.operator(domain, name)) is not None]
    sinces = sorted({schema.since for operator in found for schema in operator.schemas})
    last_opset = newest.get(domain, sinces[-1])
    opsets = {*sinces, *(since - 1 for since in sinces[1:]), last_opset, last_opset + 1}
    own = get_implementation(release)
    for opset in sorted(it for it in opsets if it >= sinces[0]):
        candidates = [own.operator(domain, name) if own else None, *reversed(found)]
        operator = next(
            (it for it in candidates if it and (schema := it.schema(opset)) and not schema.deprecated), None
        )
        if operator is None:
            continue
        if domain == DEFAULT_DOMAIN:
            yield Question(operator, opset, None, opset > last_opset)
        else:
            for ai_onnx in (ANY_OPSET, newest[DEFAULT_DOMAIN] + 1):
                yield Question(operator, opset, ai_onnx, opset > last_opset or ai_onnx > newest[DEFAULT_DOMAIN])


def _list_cases(question: Question, release: str) -> Iterator[tuple[Case, dict[str, bytes]]]:
    """Yield the answer about each type, and about some pairs of types, with the models that decide about it."""
    operator, opset, _, is_refused = question
    schema = operator.schema(opset)
    assert schema is not None
    rows = _ask(question, release, {})
    for row in rows[:1] if is_refused else rows:
        if _has_parameter(schema, row.parameter):
            yield _make_case(question, schema, {row.parameter: row.type}, row.spans[0])
    parameters = sorted(name for name in schema.constraints if _has_parameter(schema, name))
    if len(parameters) <= 1 or is_refused:
        return
    choice = random.Random(f"{operator.domain}.{operator.name}({opset})")
    for _ in range(MAX_PAIRS):
        types = {name: choice.choice(sorted(schema.constraints[name])) for name in choice.sample(parameters, 2)}
        answer = next((it for it in _ask(question, release, types) if types.get(it.parameter) == it.type), None)
        if answer is not None:
            yield _make_case(question, schema, types, answer.spans[0])


def _ask(question: Question, release: str, types: dict[str, str]) -> list[TypeSupport]:
    operator, opset, ai_onnx, _ = question
    described = describe_operator(
        operator.name, domain=operator.domain, opset=opset, releases=(release,), types=types, ai_onnx=ai_onnx
    )
    return [row for it in described for version in it.versions for row in version.types]


def _has_parameter(schema: Schema, name: str) -> bool:
    return any(name in (formal.type, formal.name) for formal in (*schema.inputs, *schema.outputs))


def _make_case(
    question: Question, schema: Schema, types: dict[str, str], span: SupportSpan
) -> tuple[Case, dict[str, bytes]]:
    operator, opset, ai_onnx, _ = question
    first = next(iter(types))
    nodes = list_operations(operator, schema.since, opset, first, tuple(types.items()), ai_onnx)
    if not nodes:  # the types do not suit each other, so that they are set regardless
        alone = list_operations(operator, schema.since, opset, first, ((first, types[first]),), ai_onnx)
        nodes = tuple(_set_types(node, schema, types) for node in alone)
    named = f"{operator.domain}/{operator.name}({schema.since})@{opset}{f' ai.onnx {ai_onnx}' if ai_onnx else ''}"
    found = {
        f"{named} {' '.join(map(str, (*variant.inputs, '->', *variant.outputs)))}": _make_model(variant, schema)
        for node in nodes
        for variant in _list_variants(node, schema, types)
        if types.keys() <= {name for pair in _iterate_formals(variant, schema) for name in pair[:2]}
    }
    label = " ".join(f"{name}={value_type}" for name, value_type in types.items())
    return Case(f"{named} {label}", span.way, tuple(found), span.reason), found


def _set_types(node: Operation, schema: Schema, types: dict[str, str]) -> Operation:
    inputs, outputs = (
        tuple(it and types.get(formal.type, it) for formal, it in zip(formals, found, strict=False))
        for formals, found in ((schema.inputs, node.inputs), (schema.outputs, node.outputs))
    )
    return replace(node, inputs=inputs, outputs=outputs)


def _list_variants(node: Operation, schema: Schema, types: dict[str, str]) -> Iterator[Operation]:
    """Yield a node, the node with its optional inputs and outputs, and the node with other types of a result."""
    yield node
    bound = {parameter: it for parameter, _, it in _iterate_formals(node, schema)} | types
    inputs = _add_optional(schema.inputs, node.inputs, schema, bound)
    outputs = _add_optional(schema.outputs, node.outputs, schema, bound)
    if node.name == "QLinearConcat":  # each tensor has a scale and a zero point
        inputs = (*inputs[:2], *(inputs[2:] if len(inputs) % 3 == 2 else (inputs[1], inputs[0], inputs[1])))
    yield from (
        replace(node, inputs=variant, outputs=results)
        for variant, results in ((inputs, node.outputs), (inputs, outputs), (node.inputs, outputs))
        if (variant, results) != (node.inputs, node.outputs)
    )
    by_inputs = {formal.type for formal in schema.inputs}
    if len(node.outputs) == 1 and schema.outputs[0].type not in {*by_inputs, *types}:
        for value_type in sorted(schema.types_of(schema.outputs[0]) - set(node.outputs))[:MAX_RESULTS]:
            kept = tuple(attribute for attribute in node.attributes if attribute.name not in OF_RESULT)
            yield replace(node, outputs=(value_type,), attributes=kept)


def _add_optional(
    formals: Sequence[FormalParameter], given: tuple[str | None, ...], schema: Schema, bound: dict[str, str]
) -> tuple[str | None, ...]:
    """Return the types of arguments together with those of the optional ones; `bound` are those of type parameters."""
    types = list(given) + [None] * (len(formals) - len(given))
    for index, formal in enumerate(formals):
        if types[index] is None and formal.option == OPTIONAL and formal.name not in EXCLUSIVE:
            types[index] = bound.setdefault(formal.type, bound.get(formal.name) or min(schema.types_of(formal)))
    while types and types[-1] is None and len(types) > len(given):
        types.pop()
    return tuple(types)


def _iterate_formals(node: Operation, schema: Schema) -> Iterator[tuple[str, str, str]]:
    """Yield the type parameter, the name and the type of each argument."""
    for formals, found in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        yield from ((formal.type, formal.name, it) for formal, it in zip(formals, found, strict=False) if it)


def _make_model(node: Operation, schema: Schema) -> bytes:
    """Return a serialized model with one node. Attributes have values that the operator accepts."""
    domain = model_domain(node.domain)
    taken = [(f"x{index}" if it else "", it or "") for index, it in enumerate(node.inputs)]
    made = [(f"y{index}" if it else "", it or "") for index, it in enumerate(node.outputs)]
    proto = helper.make_node(node.name, [name for name, _ in taken], [name for name, _ in made], domain=domain)
    attributes = _choose_attributes(node, schema)
    proto.attribute.extend(helper.make_attribute(name, it) for name, it in sorted(attributes.items()) if it is not None)
    inputs = [helper.make_value_info(name, type_proto(it)) for name, it in taken if name]
    if node.name == "If":
        inputs.append(helper.make_value_info(subgraphs.OUTER, type_proto(made[0][1])))
    outputs = [helper.make_value_info(name, type_proto(it)) for name, it in made if name]
    imports = [helper.make_opsetid("", node.opset)]
    imports += [helper.make_opsetid(domain, node.version)] if domain else []
    graph = helper.make_graph([proto], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def _choose_attributes(node: Operation, schema: Schema) -> dict[str, object]:
    arguments = [*zip(schema.inputs, node.inputs, strict=False), *zip(schema.outputs, node.outputs, strict=False)]
    binding = {formal.type: it for formal, it in reversed(arguments) if it and formal.type in schema.constraints}
    binding = {formal.type: binding[formal.type] for formal, _ in arguments if formal.type in binding}
    attributes: dict[str, object] = dict(values(_convert(node, schema), binding, full=False))
    variadic = [
        it
        for index, it in enumerate(node.inputs)
        if it and (index >= len(schema.inputs) or schema.inputs[index].option in (VARIADIC, MIXED))
    ]
    attributes |= subgraphs.graphs(node.name, variadic, [it for it in node.outputs if it])
    if node.name == "MatMulNBits":
        attributes["bits"] = 4  # the only number that all releases support
    if node.name == "MurmurHash3":
        attributes["positive"] = int(node.outputs[0] != "tensor(int32)")
    for attribute in node.attributes:
        if attribute.data:
            attributes[attribute.name] = helper.get_attribute_value(AttributeProto.FromString(attribute.data))
        else:
            attributes.setdefault(attribute.name, BY_KIND.get(attribute.kind))
    return attributes


def _convert(node: Operation, schema: Schema) -> FuzzSchema:
    """Return a schema of the support table as the fuzzer reads it."""
    inputs, outputs = (
        tuple(Formal(formal.name, formal.type, OPTIONS[formal.option]) for formal in formals)
        for formals in (schema.inputs, schema.outputs)
    )
    return FuzzSchema(
        domain=node.domain,
        name=node.name,
        since=schema.since,
        deprecated=schema.deprecated,
        inputs=inputs,
        outputs=outputs,
        constraints={name: tuple(sorted(types)) for name, types in schema.constraints.items()},
        attributes={name: kind for name, (kind, _) in schema.attributes.items()},
        required=tuple(name for name, (_, required) in schema.attributes.items() if required),
        least_inputs=schema.inputs_min,
        least_outputs=schema.outputs_min,
    )


def explain(case: Case) -> str:
    """Return why the nodes of a case may not load although the answer is right; "" if there is no explanation."""
    if case.way == "unknown":
        return "depends on more than the node"
    if case.way == "none":
        return ""
    return next((reason for pattern, reason in EXPLANATIONS.items() if re.search(f"/{pattern}", case.name)), "")


def check_release(release: str, operators: str, folder: Path, *, every: bool) -> int:
    """Load the models of all cases on a release, print the differences, and return the number of unexplained ones."""
    cases, models = make_cases(release, operators)
    corpus = corpora.write(models, folder / f"answers-{release}.zip")
    python = environments.python_of(release, environments.cache())
    texts = load_all(python, corpus, folder / f"answers-{release}.lines", LEVELS["all"])
    counts: Counter[str] = Counter()
    unexplained = 0
    for case in cases:
        if not case.models:
            counts["without a model"] += 1
            continue
        loads = any(texts[name] == "" for name in case.models)
        is_right = loads == (case.way != "none")
        reason = "" if is_right else explain(case)
        counts["right" if is_right else "explained" if reason else "wrong"] += 1
        unexplained += not is_right and not reason
        if not is_right and (every or not reason):
            text = next((texts[name] for name in case.models if texts[name]), "it loads")
            print(f"  {case.name}: {case.way} {case.reason}; {reason or text.strip()[-200:]}")
    print(f"{release}: {len(cases)} answers, {len(models)} models: {dict(counts)}", flush=True)
    return unexplained


def main() -> int:
    """Check the selected releases; return 1 if an answer is wrong without an explanation."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.conformance.support_answers")
    parser.add_argument("--releases", default=",".join(RELEASES))
    parser.add_argument("--operators", default=".*", help="pattern of operator names")
    parser.add_argument("--list", action="store_true", help="also list differences that are explained")
    arguments = parser.parse_args()
    folder = environments.cache() / "answers"
    wrong = [
        check_release(release, arguments.operators, folder, every=arguments.list)
        for release in arguments.releases.split(",")
    ]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
