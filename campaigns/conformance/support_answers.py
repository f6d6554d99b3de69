"""Compare the answers of `onnxgate support` with real loads of the one-node models that they rest on.

    python -m campaigns.conformance.support_answers [--releases 1.18.1,1.32.0] [--operators 'Gelu|Reduce.*'] [--list]

For each version and type of each operator, a supported answer requires that one of the nodes loads, and an unsupported
one that none does. The status is 1 if a difference has no explanation.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from onnx import AttributeProto, helper

from campaigns.conformance import corpora, environments, subgraphs
from campaigns.conformance.attribute_values import BY_KIND, values
from campaigns.conformance.real_loads import LEVELS, load_all
from campaigns.conformance.schemas import Formal
from campaigns.conformance.schemas import Schema as FuzzSchema
from campaigns.conformance.type_names import type_proto
from onnxgate.model.facts import model_domain
from onnxgate.support.answers import SupportSpan
from onnxgate.support.matching.operations import Operation
from onnxgate.support.minimal_nodes import list_operations
from onnxgate.support.operators import (
    MIXED,
    OPTIONAL,
    SINGLE,
    VARIADIC,
    Operator,
    Schema,
    get_implementation,
    list_known_releases,
)
from onnxgate.support.queries import describe_operator, list_operators

RELEASES = ("1.16.3", "1.18.1", "1.21.1", "1.24.4", "1.28.0", "1.32.0")
IR_VERSION = 8  # every release supports it
OPTIONS = {SINGLE: "Single", OPTIONAL: "Optional", VARIADIC: "Variadic", MIXED: "Variadic"}
EXPLANATIONS = {
    r"(If|Loop)\(": "the Identity in its body does not support the type",
    r"Resize\(": "needs scales or sizes, which are optional inputs",
    r"(CategoryMapper|LabelEncoder|MurmurHash3)\(": "other attributes select the type of the output",
    r"(BeamSearch|GreedySearch|Sampling|WhisperBeamSearch)\(": "needs the graph of a decoder",
    r"(QGemm|QLinear\w+)\(": "needs zero points, which are optional inputs",
    r"(EmbedLayerNormalization|GatedDeltaNet|GroupQueryAttention)\(": "needs optional arguments",
    r"(MatMulNBits|QMoE)\(": "needs other numbers of bits",
}
"""Operators whose smallest node does not load for a reason that answers do not consider."""


class Case(NamedTuple):
    """One type of a version of an operator, with the names of the models that decide about it."""

    name: str
    way: str
    models: tuple[str, ...]


def make_cases(release: str, operators: str) -> tuple[list[Case], dict[str, bytes]]:
    """Return the answers about a release, and the models by name."""
    cases: list[Case] = []
    models: dict[str, bytes] = {}
    for domain, name in list_operators():
        implementation = get_implementation(release)
        operator = implementation.operator(domain, name) if implementation else None
        if operator is not None and re.fullmatch(operators, name):
            for case, found in _list_cases(operator, release):
                cases.append(case)
                models |= found
    return cases, models


def _list_cases(operator: Operator, release: str) -> Iterator[tuple[Case, dict[str, bytes]]]:
    schemas = {schema.since: schema for schema in operator.schemas if not schema.deprecated}
    for described in describe_operator(operator.name, domain=operator.domain):
        for version in described.versions:
            if version.version not in schemas:
                continue
            for row in version.types:
                name = f"{operator.domain}/{operator.name}({version.version})@{version.first_opset}"
                span = _find_span(release, row.spans)
                if span.reason.startswith("opset "):
                    continue
                types = ((row.parameter, row.type),)
                nodes = list_operations(operator, version.version, version.first_opset, row.parameter, types)
                found = {
                    f"{name} {' '.join(map(str, (*node.inputs, '->', *node.outputs)))}": _make_model(
                        node, schemas[version.version]
                    )
                    for node in nodes
                }
                yield Case(f"{name} {row.parameter}={row.type}", span.way, tuple(found)), found


def _find_span(release: str, spans: Iterable[SupportSpan]) -> SupportSpan:
    known = list_known_releases()
    return next(it for it in spans if known.index(it.since) <= known.index(release) <= known.index(it.until))


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
        loads = any(texts[name] == "" for name in case.models)
        is_right = loads == (case.way != "none")
        reason = "" if is_right else explain(case)
        counts["right" if is_right else "explained" if reason else "wrong"] += 1
        unexplained += not is_right and not reason
        if not is_right and (every or not reason):
            text = next((texts[name] for name in case.models if texts[name]), "it loads")
            print(f"  {case.name}: {case.way}; {reason or text.strip()[-200:]}")
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
