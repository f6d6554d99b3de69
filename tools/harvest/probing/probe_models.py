"""Generate probe models: one node per model, with variations of types, inputs, attributes and shapes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, checker, defs, helper, numpy_helper

from campaigns.conformance import schema_fuzz, schemas
from harvest.probing.catalogue import CATALOGUE
from harvest.probing.catalogue.entries import Entry, Value
from onnxgate.support.operators import Schema, get_implementation, list_known_releases

IR_VERSION = 10
USUAL = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(int8)", "tensor(bool)")
COMPRESSED = frozenset(
    f"tensor({name})"
    for name in (
        *("float4e2m1", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"),
        *("int2", "int4", "uint2", "uint4"),
    )
)
"""Types that engines may support only as constants, which they convert while they load a model."""
RESULT_TYPE = ("to", "dtype", "output_dtype", "output_datatype")
FULL_OPSETS = (13, 18, 21, 27)
"""Opsets of which the operator versions get combinations of variations; others get only variations of one thing."""
_COMBINATIONS = 16
_FEW_COMBINATIONS = 2
UNNAMED = (
    ("", "ATen", 1),
    ("", "ConstantFill", 1),
    ("", "Caffe2ConvTranspose", 1),
    ("ai.onnx.preview", "FlexAttention", 1),
    ("ai.onnx.preview.training", "Adagrad", 1),
    ("ai.onnx.preview.training", "Adam", 1),
    ("ai.onnx.preview.training", "Gradient", 1),
    ("ai.onnx.preview.training", "Momentum", 1),
)
"""Operators without a schema in ONNX Runtime: domain, name and version."""
_SCAN_WITHOUT_BATCH = 9
"""First opset in which Scan has no batch axis."""
_BROADCASTING = 8
"""First opset in which all elementwise operators broadcast."""
_MAX_OTHERS = 12
"""Number of models of each version of an operator that is not in the catalogue, next to those with usual types."""


@dataclass(frozen=True)
class Case:
    """One variation of an operator's node. Names are those of formal parameters and attributes."""

    form: int = 0
    types: Mapping[str, str] = field(default_factory=dict)  # type parameter -> type, instead of the usual one
    given: frozenset[str] = frozenset()  # optional inputs
    flipped: frozenset[str] = frozenset()  # inputs that are constant although they are usually computed, or vice versa
    attributes: Mapping[str, object] = field(default_factory=dict)
    dims: str = "static"  # or "symbolic", "unknown"
    outputs: int = 0  # number of outputs; 0: only those that are required


def generate(schema: Any, opset: int, seed: int = 0) -> Iterator[tuple[str, ModelProto]]:
    """Yield distinct valid models of one operator version, as used with `opset`, with their names."""
    entry = CATALOGUE.get(schema.name) if schema.domain == "" else None
    if entry is None or schema.deprecated:
        return
    known = set()
    for case in _list_cases(schema, opset, entry, random.Random(f"{schema.name} {schema.since_version} {seed}"), seed):
        model = _build(schema, opset, entry, case)
        content = model.SerializeToString(deterministic=True) if model is not None else None
        if model is None or content in known or not _is_valid(model):
            continue
        known.add(content)
        yield f"{schema.name}({schema.since_version})@{opset} {len(known)}", model


def _is_valid(model: ModelProto) -> bool:
    """Return whether the node is valid. The checker of whole models requires that shapes of all outputs are known."""
    context = checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {opset.domain: opset.version for opset in model.opset_import}
    try:
        checker.check_node(model.graph.node[0], context)
    except Exception:  # noqa: BLE001 - any error of the checker means that the model is invalid
        return False
    return model.graph.node[0].op_type not in ("DequantizeLinear", "QuantizeLinear") or _is_scale_valid(model)


def _is_scale_valid(model: ModelProto) -> bool:
    """Return whether the scale of a QuantizeLinear or DequantizeLinear fits the data, which the checker ignores."""
    node = model.graph.node[0]
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input}
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    data, scale, *points = (shapes[name] for name in node.input if name)
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if not data or not scale or scale == [1]:
        return True  # a rank that is not known, or one scale for all elements
    axis, block_size = attributes.get("axis", 1), attributes.get("block_size", 0)
    if not -len(data) <= axis < len(data) or any(point not in ([], scale) for point in points):
        return False
    if not block_size:
        return len(scale) == 1 and data[axis] in (0, *scale)  # 0: a size that is not known
    blocks = [-(-size // block_size) if index == axis % len(data) else size for index, size in enumerate(data)]
    return len(scale) == len(data) and all(size in (0, blocks[index]) for index, size in enumerate(scale))


def _list_cases(schema: Any, opset: int, entry: Entry, rng: random.Random, seed: int) -> Iterator[Case]:
    """Yield the usual case, each variation of it alone, and combinations of variations."""
    variations = list(_vary(schema, entry))
    few = not any(schema.since_version <= full <= opset for full in FULL_OPSETS)
    if not seed:
        yield Case()
        yield from variations
        for variation in () if few else variations:  # a condition needs several probes
            yield _merge([rng.choice(variations), variation])
    count = (_FEW_COMBINATIONS if few else _COMBINATIONS) if variations else 0
    groups: dict[str, list[Case]] = {}
    for variation in variations:
        groups.setdefault(_kind(variation), []).append(variation)
    for _ in range(min(count, 2 ** len(variations))):
        picked = rng.sample(sorted(groups), min(len(groups), rng.choice((2, 2, 3))))
        yield _merge([rng.choice(groups[kind]) for kind in picked])


def _kind(case: Case) -> str:
    for name in ("form", "types", "given", "flipped", "attributes", "dims", "outputs"):
        if getattr(case, name) != getattr(Case(), name):
            value = getattr(case, name)
            names = "".join(sorted(value)) if isinstance(value, Mapping | frozenset) else ""
            return f"{name} {names}"
    return ""


def _merge(cases: Sequence[Case]) -> Case:
    result = Case()
    for case in cases:
        result = Case(
            case.form or result.form,
            {**result.types, **case.types},
            result.given | case.given,
            result.flipped | case.flipped,
            {**result.attributes, **case.attributes},
            case.dims if case.dims != "static" else result.dims,
            case.outputs or result.outputs,
        )
    return result


def _vary(schema: Any, entry: Entry) -> Iterator[Case]:
    inputs = [formal.name for formal in schema.inputs]
    constraints = {each.type_param_str: _list_tensors(each) for each in schema.type_constraints}
    for index, form in enumerate(entry.forms[1:], 1):
        yield Case(form=index)
        yield Case(form=index, dims="symbolic")
        names = sorted((form.keys() - entry.forms[0].keys()) & set(inputs))
        for name in names:
            yield Case(form=index, flipped=frozenset([name]))
        stored = frozenset(name for name in inputs if name in form and not isinstance(form[name], tuple))
        if stored:
            yield Case(form=index, flipped=stored)
        for name in sorted(stored.difference(names)) if len(stored) > 1 else ():
            yield Case(form=index, flipped=frozenset([name]))
    for parameter, types in constraints.items():
        typed = {it.name for it in schema.inputs if it.type_str == parameter}
        stored = frozenset(name for name in typed if not isinstance(entry.forms[0].get(name, ()), tuple))
        for type_ in types:
            yield Case(types={parameter: type_})
            if stored:
                yield Case(types={parameter: type_}, flipped=stored)
            if type_ in COMPRESSED and typed - stored:
                yield Case(types={parameter: type_}, flipped=frozenset(typed - stored))
                yield from (Case(types={parameter: type_}, dims=dims) for dims in ("symbolic", "unknown"))
    for type_ in sorted({type_ for types in constraints.values() for type_ in types}):
        alike = {parameter: type_ for parameter, types in constraints.items() if type_ in types}
        if len(alike) > 1:
            yield Case(types=alike)
            others = (it.name for it in schema.inputs if it.type_str in alike and it.name in entry.optional)
            yield from (Case(types=alike, given=frozenset([name])) for name in others)
    optional = [name for name in entry.optional if name in inputs]
    for name in optional:
        yield Case(given=frozenset([name]))
        yield Case(given=frozenset([name]), flipped=frozenset([name]))
    for formal in schema.inputs:  # engines may compare its type with those of other inputs
        for type_ in constraints.get(formal.type_str, ()) if formal.name in optional else ():
            yield Case(types={formal.type_str: type_}, given=frozenset([formal.name]))
    if len(optional) > 1:
        yield Case(given=frozenset(optional))
    parameters = {name for name, value in entry.forms[0].items() if not isinstance(value, tuple)} | set(optional)
    if len(parameters & set(inputs)) > 1:
        yield Case(given=frozenset(optional), flipped=frozenset(parameters & set(inputs)))
    for index, name in enumerate(inputs):
        if name not in optional:
            yield Case(flipped=frozenset([name]))
            if index == 0 and len(inputs) > 1:
                yield Case(flipped=frozenset(it for it in inputs[1:] if it not in optional))
    for name in sorted(schema.attributes):
        for value in entry.choices.get(name, ()):
            yield Case(attributes={name: value})
        default = schema.attributes[name].default_value
        if default.type and name not in entry.attributes:
            yield Case(attributes={name: helper.get_attribute_value(default)})
        if name in entry.optional:
            yield Case(attributes={name: _attribute_value(entry.optional[name], schema.attributes[name])})
    if schema.inputs:
        yield Case(dims="symbolic")
        yield Case(dims="unknown")
    for count in range(2, len(schema.outputs) + 1):
        yield Case(outputs=count)
    if schema.outputs and schema.outputs[-1].option.name == "Variadic":
        yield Case(outputs=len(schema.outputs) + 1)


def _list_tensors(constraint: Any) -> list[str]:
    """Return the tensor types that a constraint allows; other types are not probed."""
    return sorted(name for name in constraint.allowed_type_strs if name.startswith("tensor("))


def _attribute_value(value: Value, attribute: Any) -> object:
    if attribute.type.name.endswith("S") and not isinstance(value, list):
        return [value]
    return value


def _build(schema: Any, opset: int, entry: Entry, case: Case) -> ModelProto | None:
    """Return the model of a case; None if this version of the operator does not have the case."""
    if case.form >= len(entry.forms):
        return None
    form = entry.forms[case.form]
    newest = defs.get_schema(schema.name)
    if any(key in newest.attributes and key not in _list_arguments(schema) for key in form):
        return None
    constraints = {each.type_param_str: _list_tensors(each) for each in schema.type_constraints}
    own = {key: value for key, value in form.items() if key in constraints and isinstance(value, str)}
    types = _bind(constraints, {**entry.types, **own, **case.types})
    if types is None:
        return None
    inputs, initializers, names = [], [], []
    attributes = dict(entry.attributes)
    values = [*form.items()]
    for position, formal in enumerate(schema.inputs):
        is_given = formal.name in case.given or formal.option.name == "Single"
        value = _find_value(values, position, formal.name, entry, is_given)
        if value is None:
            names.append("")
            continue
        others = [it for key, it in values if key.endswith("b")] if formal.option.name == "Variadic" else []
        for number, shape in enumerate([value, *others]):
            name = f"x{position}" + ("b" * number)
            names.append(name)
            type_ = types.get(formal.type_str, formal.type_str)
            if not type_.startswith("tensor(") or (opset < _BROADCASTING and shape != form.get("0", shape)):
                return None
            is_constant = isinstance(shape, tuple) is (formal.name in case.flipped)
            array = _make_array(shape, type_)
            if is_constant:
                if array is None:
                    return None
                initializers.append(numpy_helper.from_array(array, name) if isinstance(array, np.ndarray) else array)
                if isinstance(array, TensorProto):
                    array.name = name
            else:
                dims = list(shape) if isinstance(shape, tuple) else list(np.shape(shape))
                inputs.append(_declare(name, type_, dims, case.dims))
    while names and not names[-1]:
        names.pop()
    for key, value in form.items():
        if key in schema.attributes and key not in {formal.name for formal in schema.inputs}:
            attributes[key] = _attribute_value(value, schema.attributes[key])
    attributes |= case.attributes
    for name in RESULT_TYPE:
        if name in schema.attributes and name not in attributes:
            free = [it.type_str for it in schema.outputs if it.type_str in types]
            free = [it for it in free if it not in {formal.type_str for formal in schema.inputs}]
            if free:
                attributes[name] = int(TensorProto.DataType.Value(types[free[0]][7:-1].upper()))
    if schema.name in ("Constant", "ConstantOfShape") and "value" in schema.attributes:
        array = _make_array([0], types[schema.outputs[0].type_str])
        if array is None:
            return None
        attributes["value"] = numpy_helper.from_array(array, "v") if isinstance(array, np.ndarray) else array
    attributes = {name: value for name, value in attributes.items() if name in schema.attributes}
    least = max(1, sum(it.option.name == "Single" for it in schema.outputs))
    in_form = form.get("outputs", 0)
    count = max(least, case.outputs, in_form if isinstance(in_form, int) else 0)
    outputs = [f"y{index}" for index in range(min(count, len(schema.outputs) + 1))]
    node = helper.make_node(schema.name, names, outputs)
    for name, value in sorted(attributes.items()):
        if value is None or (isinstance(value, list) and not value):
            continue
        kind = schema.attributes[name].type.name
        if kind == "FLOAT" and isinstance(value, int):
            value = float(value)
        node.attribute.append(helper.make_attribute(name, value))
    graph = helper.make_graph([node], "g", inputs, [ValueInfoProto(name=name) for name in outputs], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    return _declare_outputs(model, [types.get(it.type_str, it.type_str) for it in schema.outputs])


def _list_arguments(schema: Any) -> set[str]:
    """Return the names of the inputs and attributes of an operator version."""
    return {*schema.attributes, *(formal.name for formal in schema.inputs)}


def _declare_outputs(model: ModelProto, types: Sequence[str]) -> ModelProto | None:
    """Declare the inferred types of the outputs; `types` are used if the operator has no type inference."""
    from onnx import shape_inference

    try:
        inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception:  # noqa: BLE001 - any error of the inference means that the model is invalid
        return None
    for index, (output, found) in enumerate(zip(model.graph.output, inferred.graph.output, strict=True)):
        type_ = types[min(index, len(types) - 1)]
        if found.HasField("type") and (not found.type.HasField("tensor_type") or found.type.tensor_type.elem_type):
            output.type.CopyFrom(found.type)
        elif type_.startswith("tensor("):
            output.type.tensor_type.elem_type = TensorProto.DataType.Value(type_[7:-1].upper())
        else:
            return None
    return model


def _bind(constraints: Mapping[str, Sequence[str]], changed: Mapping[str, str]) -> dict[str, str] | None:
    types = {}
    for parameter, allowed in constraints.items():
        if not allowed:
            continue
        usual = next((type_ for type_ in USUAL if type_ in allowed), allowed[0])
        types[parameter] = changed.get(parameter, usual)
        if types[parameter] not in allowed:
            return None
    return types


def _find_value(
    values: Sequence[tuple[str, Value]], position: int, name: str, entry: Entry, is_given: bool
) -> Value | None:
    named = dict(values)
    if name in named:
        return named[name]
    if name in entry.optional:
        return entry.optional[name] if is_given else None
    if position < len(values) and (values[position][0].isdigit() or position == 0):
        return values[position][1]
    if position < len(values) and isinstance(values[position][1], tuple):
        return values[position][1]
    return None


def _declare(name: str, type_: str, dims: Sequence[int | str], how: str) -> ValueInfoProto:
    element = int(TensorProto.DataType.Value(type_[7:-1].upper()))
    shape: list[int | str] | None = list(dims)
    if how == "symbolic":
        shape = [f"{name}_{index}" if index == 0 else size for index, size in enumerate(dims)]
    elif how == "unknown":
        shape = None
    return helper.make_tensor_value_info(name, element, shape)


def _make_array(value: Value, type_: str) -> np.ndarray[Any, Any] | TensorProto | None:
    """Return a constant: the value of a parameter, or small numbers for a shape of fixed sizes.

    None if the type has no constants, or if a size is dynamic.
    """
    if isinstance(value, tuple) and any(isinstance(size, str) for size in value):
        return None
    element = int(TensorProto.DataType.Value(type_[7:-1].upper()))
    if element == TensorProto.STRING:
        dims = value if isinstance(value, tuple) else np.shape(value)
        return np.full(dims, "a", dtype=object)
    try:
        dtype = helper.tensor_dtype_to_np_dtype(element)
    except KeyError:
        return None
    numbers = np.ones(value) if isinstance(value, tuple) else np.array(value)
    return numbers.astype(dtype)


def list_versions(minimum: int = 1) -> list[tuple[Any, int]]:
    """Return every schema of ai.onnx that is not deprecated, with the newest opset that selects it."""
    newest = defs.onnx_opset_version()
    by_name: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            by_name.setdefault(schema.name, []).append(schema)
    chosen = []
    for name in sorted(by_name):
        versions = sorted(by_name[name], key=lambda schema: schema.since_version)
        for schema, later in zip(versions, [*versions[1:], None], strict=True):
            last = later.since_version - 1 if later is not None else newest
            if not schema.deprecated and last >= minimum:
                chosen.append((schema, last))
    return chosen


def generate_others(seed: int = 0) -> Iterator[tuple[str, ModelProto]]:
    """Yield models of operators that are not in the catalogue, with inputs of unknown shape.

    Their schemas are those of the newest known release of ONNX Runtime, which also has operators of other domains. The
    newest Identity has all types, so that each type of sequence and optional value is the input and output of a model.
    """
    newest = list_known_releases()[-1]
    implementation = get_implementation(newest)
    assert implementation is not None
    known = []
    for domain in schemas.DOMAINS:
        for name in implementation.operators(domain):
            operator = implementation.operator(domain, name)
            for schema in operator.schemas if operator is not None else ():
                others = any(
                    not type_.startswith("tensor(") for types in schema.constraints.values() for type_ in types
                )
                if domain != "ai.onnx" or name not in CATALOGUE or others:
                    known.append(_describe(domain, name, schema))
    for schema, last in schemas.in_force(known, implementation.newest_opsets):
        cases = list(schema_fuzz.cases(schema, last))
        if schema.domain == "ai.onnx" and schema.name in CATALOGUE:
            cases = [case for case in cases if not all(type_.startswith("tensor(") for _, type_ in case.binding)]
        rng = random.Random(f"{schema.domain} {schema.name} {schema.since} {seed}")
        usual = [case for case in cases if case.binding == cases[0].binding]
        is_newest_identity = schema.name == "Identity" and last == implementation.newest_opsets["ai.onnx"]
        count = 0 if schema.domain != "ai.onnx" else len(cases) if is_newest_identity else _MAX_OTHERS
        more = rng.sample(cases, min(len(cases), count))
        chosen = {case.name: case for case in (*usual, *more)}
        for case in chosen.values():
            model = schema_fuzz.model(case, implementation.newest_opsets["ai.onnx"])
            name = f"{domain_label(schema.domain)}{case.name.partition('/')[2]}"
            yield name, model
            if not model.graph.node[0].attribute or schema.name not in ("If", "Loop", "Scan", "SequenceMap"):
                yield f"{name} shaped", _set_shapes(model)


def _set_shapes(model: ModelProto) -> ModelProto:
    """Return a copy in which all inputs are matrices."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in copy.graph.input:
        innermost = value.type
        while not innermost.HasField("tensor_type") and (kind := innermost.WhichOneof("value")):
            if kind not in ("sequence_type", "optional_type"):
                break
            innermost = getattr(innermost, kind).elem_type
        for size in (2, 3) if innermost.HasField("tensor_type") else ():
            innermost.tensor_type.shape.dim.add(dim_value=size)
    return copy


def generate_captures() -> Iterator[tuple[str, ModelProto]]:
    """Yield models with a Scan whose body takes no value, a constant or an input from around it."""
    for schema, opset in list_versions(_SCAN_WITHOUT_BATCH):
        for element in (TensorProto.FLOAT, TensorProto.INT64) if schema.name == "Scan" else ():
            vector, matrix = ([size] * rank for size, rank in ((2, 1), (2, 2)))
            declare = functools.partial(helper.make_tensor_value_info, elem_type=element)
            for source, outer in (("nothing", "x"), ("a constant", "w"), ("an input", "w")):
                nodes = [helper.make_node("Add", ["s", "x"], ["d"]), helper.make_node("Add", ["d", outer], ["e"])]
                body = [[declare(name, shape=vector) for name in names] for names in (("s", "x"), ("d", "e"))]
                scan = helper.make_node("Scan", ["a", "b"], ["y", "z"], num_scan_inputs=1)
                scan.attribute.append(helper.make_attribute("body", helper.make_graph(nodes, "body", *body)))
                constants = [helper.make_tensor("w", element, vector, [1, 2])] if source == "a constant" else []
                inputs = [declare("a", shape=vector), declare("b", shape=matrix)]
                inputs += [declare("w", shape=vector)] if source == "an input" else []
                outputs = [declare("y", shape=vector), declare("z", shape=matrix)]
                graph = helper.make_graph([scan], "g", inputs, outputs, constants)
                model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
                yield f"Scan({schema.since_version})@{opset} body with {source}, {element}", model


def generate_unnamed() -> Iterator[tuple[str, ModelProto]]:
    """Yield a model of each operator that ONNX Runtime does not define: their arguments are arbitrary."""
    for domain, name, version in UNNAMED:
        node = helper.make_node(name, ["x"], ["y"], domain=domain)
        value = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [2, 3]) for it in ("x", "y")]
        opsets = {"": 18, domain: version}
        model = helper.make_model(
            helper.make_graph([node], "g", value[:1], value[1:]),
            opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()],
            ir_version=IR_VERSION,
        )
        yield f"{domain}.{name} alone", model


def domain_label(domain: str) -> str:
    """Return the prefix of an operator's name that its domain adds."""
    return "" if domain == "ai.onnx" else f"{domain}."


def _describe(domain: str, name: str, schema: Schema) -> schemas.Schema:
    options = ("Single", "Optional", "Variadic", "Variadic")
    return schemas.Schema(
        domain=domain,
        name=name,
        since=schema.since,
        deprecated=schema.deprecated,
        inputs=tuple(schemas.Formal(it.name, it.type, options[it.option]) for it in schema.inputs),
        outputs=tuple(schemas.Formal(it.name, it.type, options[it.option]) for it in schema.outputs),
        constraints={key: tuple(sorted(types)) for key, types in schema.constraints.items()},
        attributes={key: kind for key, (kind, _) in schema.attributes.items()},
        required=tuple(sorted(key for key, (_, required) in schema.attributes.items() if required)),
        least_inputs=schema.inputs_min,
        least_outputs=schema.outputs_min,
    )
