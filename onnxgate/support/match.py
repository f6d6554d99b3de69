"""Whether a release implements an operation, as ONNX Runtime decides it when it loads a model.

Source: the rules were read off from loads of models on ONNX Runtime 1.16 to 1.31; `tests/conformance` holds them to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxgate.support.binding import first_argument
from onnxgate.support.bodies import expand
from onnxgate.support.operations import Miss, Operation, TypedNode
from onnxgate.support.refusals import body_refusal, is_unregistered, refusal
from onnxgate.support.signature import fault
from onnxgate.support.table import Implementation, Kernel, Operator, Schema

Answer = Miss | str | None
"""A miss; why it cannot be told; None where the operation is implemented."""

FLOAT16, FLOAT = "tensor(float16)", "tensor(float)"
CPU = "CPUExecutionProvider"
_DEPTH = 16
_CAST_SINCE = 6


def match(operation: Operation, implementation: Implementation, providers: Sequence[str] = (CPU,)) -> Answer:
    """What the release makes of the operation."""
    return _Matching(implementation, frozenset({*providers, CPU})).answer(operation, 0)


def is_kernel_of(kernel: Kernel, since: int) -> bool:
    """Whether a kernel is for a schema's version: an open-ended one is for the version that it starts at alone."""
    return kernel.start == since or (kernel.end != 0 and kernel.start <= since <= kernel.end)


class _Matching:
    def __init__(self, implementation: Implementation, providers: frozenset[str]) -> None:
        self._on = implementation
        self._providers = providers

    def answer(self, operation: Operation, depth: int) -> Answer:
        """What the release makes of the operation; remembered with the release."""
        key = (operation, self._providers)
        if key not in self._on.answers:
            self._on.answers[key] = self._decide(operation, depth)
        return self._on.answers[key]  # type: ignore[return-value]

    def _decide(self, operation: Operation, depth: int) -> Answer:
        version = self._version(operation)
        operator = self._on.operator(operation.domain, operation.name)
        if version is None:
            problem = f"`{operation.label}` is of domain `{operation.domain}`, which the model does not import"
            return Miss("unknown-domain", problem)
        if operator is None and not self._on.has_domain(operation.domain):
            problem = f"`{operation.label}` is of domain `{operation.domain}`, which is not known"
            return Miss("unknown-domain", problem)
        schema = operator.schema(version) if operator else None
        if operator is None or schema is None:
            return _unknown(operation, version, operator)
        if schema.deprecated:
            return Miss("deprecated-operator", f"`{operation.label}` is deprecated since opset {schema.since}")
        if (operation.domain, operation.name) == ("ai.onnx", "Constant"):
            return _constant(operation, schema, self._on)
        return fault(operation, schema) or self._implemented(operation, operator, schema, depth)

    def _version(self, operation: Operation) -> int | None:
        """What is imported of the operator's domain; ONNX Runtime imports by itself what it knows and a model does not.

        Source: ONNX Runtime 1.16 to 1.31.
        """
        return operation.version or self._on.newest_opsets.get(operation.domain)

    def _implemented(self, operation: Operation, operator: Operator, schema: Schema, depth: int) -> Answer:
        kernels = [
            each for each in operator.kernels if each.provider in self._providers and is_kernel_of(each, schema.since)
        ]
        answers = [_takes(kernel, schema, operation) for kernel in kernels]
        if True in answers:
            return refusal(operation, schema.since, self._on.release)
        expanded = expand(operation, schema, self._on) if depth < _DEPTH else None
        if expanded is not None:
            refused = body_refusal(operation, schema.since, self._on.release)
            inside = refused or self._expanded(operation, schema, expanded, depth)
            return _untold(operation) if isinstance(inside, Miss) and None in answers else inside
        answers += _cast(kernels, schema, operation)
        if True in answers:
            return refusal(operation, schema.since, self._on.release)
        if operation.domain == "ai.onnx" and operation.name == "Shape" and operation.static:
            return None  # folded into a constant before kernels are looked for
        return _untold(operation) if None in answers else _missing(operation, operator, schema, kernels)

    def _expanded(
        self, operation: Operation, schema: Schema, expanded: tuple[TypedNode, ...] | str, depth: int
    ) -> Answer:
        if isinstance(expanded, str):
            return expanded
        name = f"{operation.label}({schema.since})"
        told: Answer = None
        for node in (each for top in expanded for each in top.every()):
            answer = self.answer(node.operation, depth + 1)
            if isinstance(answer, Miss):
                problem = f"`{name}` has no kernel for its types, and in its function body {answer.problem}"
                return replace(answer, rule="missing-kernel", problem=problem)
            told = told or answer
        return told


def _cast(kernels: Sequence[Kernel], schema: Schema, operation: Operation) -> list[bool | None]:
    """The same once float16 is cast to float, which ONNX Runtime does by itself where an input is float16.

    Source: ONNX Runtime 1.16 to 1.31; not before opset 6, whose Cast takes a number, nor around subgraphs, nor into
    sequences.
    """
    graphs = any(attribute.kind == "GRAPH" for attribute in operation.attributes)
    if FLOAT16 not in operation.inputs or graphs or 0 < operation.opset < _CAST_SINCE:
        return []
    if any(each and "float16" in each and not each.startswith("tensor(") for each in operation.outputs):
        return []
    widened = replace(operation, inputs=_widened(operation.inputs), outputs=_widened(operation.outputs))
    return [] if fault(widened, schema) else [_takes(kernel, schema, widened) for kernel in kernels]


def _constant(operation: Operation, schema: Schema, implementation: Implementation) -> Miss | None:
    """It becomes an initializer before kernels are looked for; its value must be of a type that the release has."""
    given = next((each for each in operation.outputs if each), "")
    if is_unregistered(given, implementation.release):
        problem = f"`{operation.label}({schema.since})` gives `{given}`"
        return Miss("type-mismatch", problem, "has no such type")
    wrong = fault(operation, schema)
    return None if wrong is not None and wrong.rule == "type-mismatch" else wrong


def _widened(types: tuple[str | None, ...]) -> tuple[str | None, ...]:
    return tuple(FLOAT if each == FLOAT16 else each for each in types)


def _takes(kernel: Kernel, schema: Schema, operation: Operation) -> bool | None:
    """Whether a kernel is for the node's types; None where a type that it asks for is not known."""
    told: bool | None = True
    for key, types in kernel.constraints.items():
        given = first_argument(schema, key, operation.inputs, operation.outputs)
        if given == "":
            possible = _possible(schema, key)
            if possible <= types:
                continue
            if not possible & types:
                return False
            told = None
        elif given is not None and given not in types:
            return False
    return told


def _possible(schema: Schema, key: str) -> frozenset[str]:
    """The types that an argument which a kernel's constraint names may have."""
    named = (formal for formal in (*schema.inputs, *schema.outputs) if key in (formal.type, formal.name))
    return schema.types_of(next(named))


def _untold(operation: Operation) -> str:
    unknown = [f"input {index}" for index, each in enumerate(operation.inputs, 1) if each == ""]
    unknown += [f"output {index}" for index, each in enumerate(operation.outputs, 1) if each == ""]
    return f"the type of {', '.join(unknown)} of `{operation.label}` is not known"


def _unknown(operation: Operation, version: int, operator: Operator | None) -> Miss:
    first = operator.schemas[0].since if operator and operator.schemas else None
    problem = f"`{operation.label}` is no operator of opset {version} of `{operation.domain}`"
    return Miss("unknown-operator", problem, f"has it from opset {first} on" if first else "")


def _missing(operation: Operation, operator: Operator, schema: Schema, kernels: Sequence[Kernel]) -> Miss:
    name = f"{operation.label}({schema.since})"
    if not kernels:
        return Miss("missing-kernel", f"there is no kernel for `{name}`", _versions(operator))
    keys = list(dict.fromkeys(key for kernel in kernels for key in kernel.constraints))
    given = {key: first_argument(schema, key, operation.inputs, operation.outputs) for key in keys}
    wrong = [
        key
        for key in keys
        if given[key] and not any(given[key] in kernel.constraints.get(key, (given[key],)) for kernel in kernels)
    ] or keys
    said = ", ".join(f"`{key}` = `{given[key]}`" for key in wrong if given[key])
    taken = "; ".join(f"`{key}` as {_list(kernels, key)}" for key in wrong)
    return Miss("missing-kernel", f"there is no kernel for `{name}` with {said}", f"implements {taken}")


def _list(kernels: Sequence[Kernel], key: str) -> str:
    types = sorted({each for kernel in kernels for each in kernel.constraints.get(key, ())})
    return ", ".join(f"`{each}`" for each in types)


def _versions(operator: Operator) -> str:
    ranges = sorted({(kernel.start, kernel.end) for kernel in operator.kernels})
    if not ranges:
        return "implements none of its versions"
    said = [f"{start}" if end in (0, start) else f"{start} to {end}" for start, end in ranges]
    return f"implements {', '.join(said)}"
