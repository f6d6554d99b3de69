"""Build the smallest nodes of an operator: with the required arguments, and with each combination of types."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN, ELEMENT_TYPES, parse_type
from onnxgate.support.matching.node_checks import infer_output_types
from onnxgate.support.matching.onnxruntime.float16_casts import FLOAT, FLOAT16
from onnxgate.support.matching.operations import Attribute, Operation
from onnxgate.support.operators import MIXED, OPTIONAL, VARIADIC, FormalParameter, Kernel, Operator, Schema

if TYPE_CHECKING:
    from onnx import ValueInfoProto

_USUAL_TYPES = (FLOAT, *(f"tensor({name})" for name in ("int64", "int32", "uint8", "int8", "bool")))
"""Types that are tried first for the other parameters of an operator."""
_BODY_ATTRIBUTES = dict.fromkeys(("blocksize", "num_groups", "q_num_heads", "kv_num_heads"), 1)
"""Values of required attributes without which an operator has no function body."""
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type")
"""Attributes that set the element type of an output."""
_OPTIONAL_INPUTS = {
    "LinearAttention": ("decay", "beta"),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ("A_zero_point", "B_zero_point")),
    "QLinearAveragePool": ("x_zero_point",),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid"), ("Y_zero_point",)),
}
"""Optional inputs without which the function body of an operator is not valid, or its types cannot be inferred."""
_PAIRED_INPUTS = {"GroupQueryAttention": ("past_key", "past_value")}
"""Optional inputs of an operator of which newer releases require both or none."""
_CONTAINERS = {
    **dict.fromkeys(("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceInsert"), ("S", "T")),
    "Optional": ("O", "V"),
    "OptionalGetElement": ("O", "V"),
    "SplitToSequence": ("S", "T"),
}
"""Operators whose type parameters are a sequence or optional and its elements."""
_FIRST_TYPES = ("float", "float16", "bfloat16", "double")
"""Element types that lists begin with."""
_WITH_OTHER_RESULT = frozenset({("ai.onnx.ml.CategoryMapper", 1), ("ai.onnx.ml.LabelEncoder", 1)})
"""Operators of which the output has the type that the input does not have: strings for integers, or the reverse."""
_AI_ONNX_OPSET = 17
"""Opset of ai.onnx that models with operators of other domains import; all known releases accept it."""


class _Arguments(NamedTuple):
    """Formal parameters of the arguments of a node; None for an omitted argument."""

    inputs: tuple[FormalParameter | None, ...]
    outputs: tuple[FormalParameter | None, ...]

    def list_parameters(self, schema: Schema) -> list[str]:
        """Return the type parameters of the arguments."""
        names = [formal.type for formal in (*self.inputs, *self.outputs) if formal is not None]
        return [name for name in dict.fromkeys(names) if name in schema.constraints]


def list_operations(
    operator: Operator,
    since: int,
    opset: int,
    parameter: str,
    types: tuple[tuple[str, str], ...],
    ai_onnx: int | None = None,
) -> tuple[Operation, ...]:
    """Return the smallest nodes of an operator's version, in models that import an opset of its domain.

    `types` fixes types of some type parameters; one of these is `parameter`, which the other types resemble if
    possible. The first nodes have types that a kernel accepts, then follow those for function bodies and casts. The
    result is empty if no arguments can have the types together. `ai_onnx` is the opset of ai.onnx in models with
    operators of other domains.
    """
    schema = next(schema for schema in operator.schemas if schema.since == since)
    kernels = tuple(kernel for kernel in operator.kernels if kernel.start <= since <= (kernel.end or kernel.start))
    imported = opset if operator.domain == DEFAULT_DOMAIN else ai_onnx or _AI_ONNX_OPSET
    operations = _make_operations(operator.domain, operator.name, schema, kernels, parameter, types)
    return tuple(replace(operation, version=opset, opset=imported) for operation in operations)


@functools.lru_cache(maxsize=2**14)
def _make_operations(
    domain: str,
    name: str,
    schema: Schema,
    kernels: tuple[Kernel, ...],
    parameter: str,
    types: tuple[tuple[str, str], ...],
) -> tuple[Operation, ...]:
    """Return the smallest nodes of one version of an operator, in models without opsets."""
    arguments = _select_arguments(name, schema, tuple(name for name, _ in types))
    bindings = _list_bindings(name, schema, kernels, arguments, parameter, dict(types))
    operations = [_make_operation(domain, name, schema, arguments, binding) for binding in bindings]
    return tuple(it for it in operations if _is_consistent(it, schema))


def is_chosen_by_attribute(schema: Schema, parameter: str) -> bool:
    """Return whether an attribute sets the type of a parameter. ONNX Runtime does not check such types in a schema.

    Source: Cast, ConstantOfShape, Bernoulli and DequantizeLinear with result types that their schemas lack, loaded on
    13 releases from 1.16.0 to 1.32.0.
    """
    is_result = parameter in {formal.type for formal in schema.outputs}
    by_inputs = {formal.type for formal in schema.inputs}
    has_attribute = any(name in schema.attributes for name in (*_TYPE_ATTRIBUTES, "value"))
    return is_result and parameter not in by_inputs and parameter in schema.constraints and has_attribute


def translate_parameter(name: str, known: Sequence[Schema], schema: Schema) -> tuple[str, ...]:
    """Return the type parameters of a schema for the arguments that have the parameter `name` in known schemas.

    Releases can have different schemas of one version: newer ones may have more type parameters, or more arguments.
    """
    if name in {formal.type for formal in (*schema.inputs, *schema.outputs)}:
        return (name,)
    having = [it for it in reversed(known) if name in {formal.type for formal in (*it.inputs, *it.outputs)}]
    reference = (*having, known[-1])[0]
    sides = ((reference.inputs, schema.inputs), (reference.outputs, schema.outputs))
    pairs = [(theirs, own) for formals, mine in sides for theirs in formals for own in mine if theirs.name == own.name]
    found = [own for theirs, own in pairs if name in (theirs.type, theirs.name)]
    return tuple(dict.fromkeys(own.type if own.type in schema.constraints else own.name for own in found))


def list_accepted_types(schema: Schema, parameter: str) -> frozenset[str]:
    """Return the types that a schema allows for a type parameter, or for an argument whose type never varies."""
    if parameter in schema.constraints:
        return schema.constraints[parameter]
    formals = [it for it in (*schema.inputs, *schema.outputs) if it.name == parameter]
    return frozenset().union(*(schema.types_of(it) for it in formals))


def list_parameter_types(schemas: Sequence[Schema]) -> dict[str, list[str]]:
    """Return the types of each type parameter in any of the schemas.

    If no type of the operator varies, the parameters are the inputs and outputs.
    """
    types: dict[str, set[str]] = {}
    for schema in reversed(schemas):
        for formal in (*schema.inputs, *schema.outputs):
            if formal.type in schema.constraints:
                types.setdefault(formal.type, set()).update(schema.constraints[formal.type])
    if not types:
        for formal in (*schemas[-1].inputs, *schemas[-1].outputs):
            types.setdefault(formal.name, {formal.type})
    return {name: sorted(listed, key=_get_sort_key) for name, listed in types.items()}


def _get_sort_key(value_type: str) -> tuple[str, int, str, int]:
    """Return a key that sorts types: first tensors; of these, first the usual floats, then by name and size."""
    kind, _, element = value_type.rstrip(")").rpartition("(")
    stem = element.rstrip("0123456789")
    order = _FIRST_TYPES.index(element) if element in _FIRST_TYPES else len(_FIRST_TYPES)
    return "" if kind == "tensor" else kind, order, stem, int(element[len(stem) :] or 0)


def _is_consistent(operation: Operation, schema: Schema) -> bool:
    """Return whether the types of the outputs are those that ONNX Runtime infers, if it infers any.

    Sequences and optionals must have the elements that the other arguments have; OptionalGetElement returns other types
    as they are.
    """
    inferred = infer_output_types(operation.label, schema, operation.inputs, len(operation.outputs))
    if any(it and output and it != output for it, output in zip(inferred, operation.outputs, strict=True)):
        return False
    arguments = (
        *zip(schema.inputs, operation.inputs, strict=False),
        *zip(schema.outputs, operation.outputs, strict=False),
    )
    types = {formal.type: value_type for formal, value_type in arguments if value_type}
    if (operation.label, schema.since) in _WITH_OTHER_RESULT and len(set(types.values())) < len(types):
        return False
    if operation.name == "BitCast" and len({_count_bits(value_type) for value_type in types.values()}) > 1:
        return False
    container, element = (types.get(name, "") for name in _CONTAINERS.get(operation.name, ("", "")))
    is_plain = operation.name == "OptionalGetElement" and not container.startswith("optional(")
    return not container or not element or element == (container if is_plain else container.partition("(")[2][:-1])


def _count_bits(value_type: str) -> int:
    """Return the number of bits of a tensor's element; 0 if it is unknown."""
    element = value_type.removeprefix("tensor(").removesuffix(")")
    return next((row.bits for row in ELEMENT_TYPES.values() if row.name == element), 0)


def _select_arguments(name: str, schema: Schema, wanted: tuple[str, ...]) -> _Arguments:
    """Return the required arguments of a node, and optional ones for the parameters that none of these has.

    An optional input is also added if it determines the type of an output.
    """
    outputs = _choose(schema.outputs, schema.outputs_min, ())
    if not any(outputs):
        outputs = schema.outputs[:1]
    inputs = _choose(schema.inputs, schema.inputs_min, ())
    present = {formal.type for formal in (*inputs, *outputs) if formal}
    present |= {formal.name for formal in (*inputs, *outputs) if formal}
    missing = {it for it in (*wanted, *_OPTIONAL_INPUTS.get(name, ())) if it not in present}
    by_inputs = {formal.type for formal in schema.inputs}
    if missing - by_inputs:
        outputs = _choose(schema.outputs, max(schema.outputs_min, 1), missing - by_inputs)
    unbound = {formal.type for formal in outputs if formal} - {formal.type for formal in inputs if formal}
    wanted_inputs = (missing | unbound) & schema.constraints.keys() | missing
    inputs = _choose(schema.inputs, schema.inputs_min, wanted_inputs)
    paired = _PAIRED_INPUTS.get(name, ())
    if any(formal.name in paired for formal in inputs if formal):
        inputs = _choose(schema.inputs, schema.inputs_min, {*wanted_inputs, *paired})
    return _Arguments(inputs, outputs)


def _choose(
    formals: Sequence[FormalParameter], least: int, wanted: Iterable[str]
) -> tuple[FormalParameter | None, ...]:
    """Return the required parameters, and the first optional one for each wanted type or name."""
    chosen: list[FormalParameter | None] = []
    missing = set(wanted)
    for formal in formals:
        is_wanted = formal.type in missing or formal.name in missing
        if formal.option in (VARIADIC, MIXED):
            chosen += [formal] * max(least - len(chosen), int(is_wanted))
        else:
            chosen.append(formal if is_wanted or formal.option != OPTIONAL else None)
        if is_wanted:
            missing -= {formal.type, formal.name}
    while chosen and chosen[-1] is None and len(chosen) > least:
        chosen.pop()
    return tuple(chosen)


def _list_bindings(
    operator: str,
    schema: Schema,
    kernels: Sequence[Kernel],
    arguments: _Arguments,
    parameter: str,
    fixed: Mapping[str, str],
) -> Iterator[dict[str, str]]:
    """Yield combinations of types with the fixed ones, without duplicates; first, combinations that kernels accept.

    Source: no other combination changed an answer about the 1,411 types of versions with function bodies. The models of
    `campaigns/conformance/support_answers`, loaded on 34 releases from 1.16.0 to 1.32.0, agree with all answers.
    """
    allowed = {name: schema.constraints[name] for name in arguments.list_parameters(schema)}
    wrong = [name for name, types in allowed.items() if name in fixed and fixed[name] not in types]
    if not all(is_chosen_by_attribute(schema, name) for name in wrong):
        return
    allowed = {name: frozenset({fixed[name]}) if name in fixed else types for name, types in allowed.items()}
    pair = _CONTAINERS.get(operator, ())
    related = {it: [fixed[other] for other in pair if other in fixed] if it in pair else [] for it in allowed}
    like = (fixed[parameter], *fixed.values())
    ranked = {it: _rank_types(types, (*related[it], *like)) for it, types in allowed.items()}
    yielded = set()
    by_kernel, by_cast = (
        [_bind_kernel(schema, kernel, ranked, casts=casts) for kernel in kernels] for casts in (False, True)
    )
    alike = {name: types[0] for name, types in ranked.items()}
    usual = {name: next((it for it in _USUAL_TYPES if it in types), types[0]) for name, types in ranked.items()}
    for binding in (*by_kernel, alike, usual, *by_cast):
        key = tuple(binding.items()) if binding is not None else None
        if binding is not None and key not in yielded:
            yielded.add(key)
            yield binding


def _rank_types(types: frozenset[str], like: Sequence[str]) -> list[str]:
    """Return the types in the order in which they are tried: similar to given ones, then usual ones, then others."""
    similar = [
        related
        for value_type in like
        for related in (value_type, f"seq({value_type})", f"optional({value_type})", _find_element(value_type))
    ]
    first = (*similar, *_USUAL_TYPES)
    return [*(it for it in dict.fromkeys(first) if it in types), *sorted(types - set(first))]


def _find_element(value_type: str) -> str:
    return value_type.partition("(")[2][:-1] if value_type.startswith(("seq(", "optional(")) else ""


def _bind_kernel(
    schema: Schema, kernel: Kernel, ranked: Mapping[str, Sequence[str]], *, casts: bool
) -> dict[str, str] | None:
    """Return a combination of types that a kernel accepts, with `casts` of float16 to float; None if there is none."""
    types_by_name = {formal.name: formal.type for formal in (*schema.inputs, *schema.outputs)}
    accepted: dict[str, frozenset[str]] = {}
    for key, types in kernel.constraints.items():
        name = key if key in schema.constraints else types_by_name.get(key, key)
        accepted[name] = types & accepted.get(name, types)
    binding = {}
    for name, candidates in ranked.items():
        kernel_types = accepted.get(name)
        chosen = next((it for it in candidates if kernel_types is None or it in kernel_types), None)
        if casts and chosen is None and kernel_types is not None and FLOAT in kernel_types and FLOAT16 in candidates:
            chosen = FLOAT16
        if chosen is None:
            return None
        binding[name] = chosen
    return binding


def _make_operation(
    domain: str, name: str, schema: Schema, arguments: _Arguments, binding: Mapping[str, str]
) -> Operation:
    inputs, outputs = (
        tuple(None if formal is None else binding.get(formal.type, formal.type) for formal in formals)
        for formals in arguments
    )
    bound = {formal.type for formal in arguments.inputs if formal}
    unbound = [formal.type for formal in arguments.outputs if formal and formal.type not in bound]
    result = next((binding[it] for it in unbound if it in binding), "")
    attributes = tuple(_list_attributes(name, schema, result, (inputs, outputs)))
    return Operation(domain, name, 0, 0, inputs, outputs, attributes, static=False)


def _list_attributes(
    name: str, schema: Schema, result: str, types: tuple[Sequence[str | None], Sequence[str | None]]
) -> Iterator[Attribute]:
    """Yield required attributes, and the one that sets the type of an output that no input determines.

    Values are unknown except for those that decide on types and function bodies.
    """
    by_result = next((it for it in _TYPE_ATTRIBUTES if it in schema.attributes), "") if result else ""
    for attribute, (kind, required) in sorted(schema.attributes.items()):
        if attribute == by_result:
            yield Attribute(attribute, kind, _encode_type(attribute, kind, result))
        elif attribute == "value" and name in ("Constant", "ConstantOfShape"):
            yield Attribute(attribute, kind, b"")
        elif required and name == "SequenceMap" and kind == "GRAPH":
            yield Attribute(attribute, kind, _encode_identity_body(attribute, *types))
        elif required:
            yield Attribute(attribute, kind, _encode_body_attribute(attribute, kind))


@functools.cache
def _encode_type(attribute: str, kind: str, value_type: str) -> bytes:
    from onnx import helper

    element = value_type.rstrip(")").rpartition("(")[2]
    number = next((number for number, row in ELEMENT_TYPES.items() if row.name == element), 0)
    value = number if kind == "INT" else element.upper()
    return bytes(helper.make_attribute(attribute, value).SerializeToString())


@functools.cache
def _encode_body_attribute(attribute: str, kind: str) -> bytes:
    from onnx import helper

    if attribute not in _BODY_ATTRIBUTES or kind != "INT":
        return b""
    return bytes(helper.make_attribute(attribute, _BODY_ATTRIBUTES[attribute]).SerializeToString())


@functools.cache
def _encode_identity_body(attribute: str, inputs: tuple[str | None, ...], outputs: tuple[str | None, ...]) -> bytes:
    """Return an attribute with a graph that returns its first input, for SequenceMap."""
    from onnx import helper

    def value(name: str, value_type: str | None) -> ValueInfoProto:
        element = (value_type or "").removeprefix("seq(")
        return helper.make_value_info(name, parse_type(element[:-1] if element != value_type else element))

    node = helper.make_node("Identity", ["i0"], ["o0"])
    graph_inputs = [value(f"i{index}", value_type) for index, value_type in enumerate(inputs)]
    graph = helper.make_graph([node], "body", graph_inputs, [value("o0", outputs[0])])
    return bytes(helper.make_attribute(attribute, graph).SerializeToString())
