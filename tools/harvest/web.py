"""Measure one release of ONNX Runtime Web: the models that it loads, compared with ONNX Runtime of the same version.

Its WebAssembly is a build of ONNX Runtime with the same schemas. It does not report its kernels, so a model with one
node is loaded for each version, kernel and type that ONNX Runtime implements. A kernel is left out if ONNX Runtime
loads its models and ONNX Runtime Web does not. Its JavaScript refuses some types of inputs and outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from onnx import ModelProto, TensorProto, helper
from packaging.requirements import Requirement

from campaigns.conformance import attribute_values, engine_loads, schema_fuzz, type_names
from campaigns.conformance.schemas import Formal, in_force
from campaigns.conformance.schemas import Schema as FuzzedSchema
from harvest.data import Description
from onnxgate.core.files import replace_atomically
from onnxgate.model.facts import ELEMENT_TYPES
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.npm import NpmResolver
from onnxgate.project.lock.types import Lock, LockedRuntime, NpmPackage
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support import harvest, operators, probes
from onnxgate.support.limits import Limits
from onnxgate.support.matching import kernels
from onnxgate.support.matching.node_checks import find_constrained_type
from onnxgate.support.matching.operations import Operation
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import Implementation, Kernel, Operator, OperatorRows, Schema, Table, TableSource

ENGINE, NATIVE = "onnxruntime-web", "onnxruntime"
OLDEST = "1.20"
OPTIONS = ("Single", "Optional", "Variadic", "Variadic")
DESCRIPTION = Description(
    ENGINE,
    "wasm",
    """# Support data of ONNX Runtime Web

`tools/harvest_support.py --engine onnxruntime-web` writes this page together with the data. The schemas and kernels are
those of the ONNX Runtime release with the same number, without the kernels whose models ONNX Runtime Web (WebAssembly,
run by Node.js) does not load. Kernels that no probe model reaches are assumed to be in the build. The limits are
measured by loading tiny models.

In the lists of changes, `7+` is a kernel with an open-ended range of versions; ONNX Runtime uses it only for version 7
of the operator. `7-12` is a kernel for versions 7 to 12. After `for` is the kernel or number that was replaced. Types
are written without `tensor(…)`.
""",
)


@dataclass(frozen=True, slots=True)
class WebRelease:
    """One release, with the packages of its environment."""

    release: str
    spec: WorkerSpec

    @property
    def package(self) -> NpmPackage:
        """The engine's npm package."""
        return next(it for it in self.spec.packages if isinstance(it, NpmPackage) and it.name == ENGINE)


class ProbeResult(msgspec.Struct, frozen=True, array_like=True):
    """Whether ONNX Runtime Web loads a model with one node that ONNX Runtime loads."""

    domain: str
    operator: str
    version: int
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    loads: bool


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one release, stored in the work folder."""

    recipe: str
    source: TableSource
    loads: dict[str, bool]  # by the name of a probe for limits
    interface_types: tuple[str, ...]
    results: tuple[ProbeResult, ...]
    platform: str = DESCRIPTION.platform

    @property
    def harvest(self) -> harvest.HarvestRecord:
        """The harvest computed from the measurements and the table of ONNX Runtime."""
        limits = msgspec.structs.replace(probes.derive_limits(self.loads), refused_interface_types=self.interface_types)
        return harvest.HarvestRecord(limits=limits, table=_reduce_table(self.source, self.results))


def find(named: Sequence[str]) -> tuple[WebRelease, ...]:
    """Return the named releases, or all releases on npm since `OLDEST` with a table of ONNX Runtime, ascending."""
    npm = NpmResolver(Lock(targets={}))
    requirements = [f"{ENGINE}=={release}" for release in named] or [f"{ENGINE}>={OLDEST}"]
    found = [release for text in requirements for release in npm.find(Requirement(text), "all")]
    if not named:
        known = operators.list_known_releases(NATIVE)
        found = [release for release in found if str(release.version) in known]
    runtimes = [npm.complete(LockedRuntime(engine=ENGINE, release=str(it.version), packages=(it.pin,))) for it in found]
    return tuple(WebRelease(it.release, WorkerSpec.of_runtime(it, npm.packages((it,)))) for it in runtimes)


def recipe() -> str:
    """Return a digest of the code that determines the content of a record."""
    modules = (probes, schema_fuzz, attribute_values, type_names)
    files = [Path(__file__), *(Path(module.__file__) for module in modules if module.__file__)]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def recorded(work: Path, release: WebRelease) -> Record | None:
    """Return the stored record of this package; None if it was measured by different code."""
    try:
        record = msgspec.json.decode(_path(work, release).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
    same = (recipe(), release.package.integrity) == (record.recipe, record.source.sha256)
    return record if same else None


def measure(work: Path, release: WebRelease) -> Record:
    """Measure a release, and store the record."""
    package = release.package
    source = TableSource(release=release.release, wheel=f"{ENGINE}-{release.release}.tgz", sha256=package.integrity)
    loads = _loads(release.spec, _limit_probes())
    types = _loads(release.spec, {name: _make_interface_probe(name) for name in _tensor_types()})
    refused_types = tuple(name for name, is_loaded in types.items() if not is_loaded)
    results = tuple(_probe_kernels(release, probes.derive_limits(loads), refused_types))
    record = Record(recipe=recipe(), source=source, loads=loads, interface_types=refused_types, results=results)
    path = _path(work, release)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as scratch:
        scratch.write_bytes(msgspec.json.encode(record))
    return record


def _path(work: Path, release: WebRelease) -> Path:
    return work / f"{ENGINE}-{release.release}.json"


def _loads(spec: WorkerSpec, models: Mapping[str, bytes]) -> dict[str, bool]:
    return {name: not text for name, text in engine_loads.load_all(spec, models).items()}


def _limit_probes() -> dict[str, bytes]:
    """Return the probes for versions. The build reads no environment variables, and gets external data as bytes."""
    return {name: data for name, data in probes.make_limit_probes().items() if not name.startswith("unreleased/")}


def _tensor_types() -> tuple[str, ...]:
    """Return the tensor types that models may have; UNDEFINED is not one."""
    return tuple(f"tensor({element.name})" for number, element in sorted(ELEMENT_TYPES.items()) if number)


def _make_interface_probe(type_name: str) -> bytes:
    """Return a model with an unused input of a type."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    extra = helper.make_value_info("extra", type_names.type_proto(type_name))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x, extra], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def _probe_kernels(release: WebRelease, limits: Limits, refused_types: Sequence[str]) -> Iterator[ProbeResult]:
    """Yield a result for each model with one node that ONNX Runtime of the same version loads."""
    native = _get_native(release.release)
    models: dict[str, bytes] = {}
    operations: dict[str, Operation] = {}
    for name, model in _make_models(native, limits.opsets):
        typed = infer_model_types(ModelView(model))
        if kernels.predict(typed, native, limits).verdict == "loads":
            models[name] = _wrap(model, refused_types).SerializeToString()
            operations[name] = typed.nodes[0].operation
    texts = engine_loads.load_all(release.spec, models)
    refused = {name: models[name] for name, text in texts.items() if text}
    confirmed = _loads(engine_loads.find_spec(NATIVE, release.release), refused) if refused else {}
    for name, text in texts.items():
        it = operations[name]
        if not text or confirmed[name]:
            yield ProbeResult(it.domain, it.name, it.version, it.inputs, it.outputs, not text)


def _get_native(release: str) -> Implementation:
    native = operators.get_implementation(release, NATIVE)
    if native is None:
        raise SystemExit(f"{ENGINE} {release}: harvest {NATIVE} {release} first")
    return native


def _make_models(native: Implementation, newest_opsets: Mapping[str, int]) -> Iterator[tuple[str, ModelProto]]:
    schemas = [
        _describe_schema(domain, name, schema)
        for domain in native.domains()
        for name in native.operators(domain)
        if (operator := native.operator(domain, name)) is not None
        for schema in operator.schemas
    ]
    for schema, _ in in_force(schemas, dict(newest_opsets)):
        if schema.since <= newest_opsets.get(schema.domain, schema.since):
            for case in schema_fuzz.cases(schema, schema.since):
                if case.typed:
                    yield case.name, schema_fuzz.model(case, newest_opsets["ai.onnx"])


def _describe_schema(domain: str, name: str, schema: Schema) -> FuzzedSchema:
    inputs, outputs = (
        tuple(Formal(formal.name, formal.type, OPTIONS[formal.option]) for formal in formals)
        for formals in (schema.inputs, schema.outputs)
    )
    return FuzzedSchema(
        domain=domain,
        name=name,
        since=schema.since,
        deprecated=schema.deprecated,
        inputs=inputs,
        outputs=outputs,
        constraints={key: tuple(sorted(types)) for key, types in sorted(schema.constraints.items())},
        attributes={attribute: kind for attribute, (kind, _) in schema.attributes.items()},
        required=tuple(sorted(attribute for attribute, (_, required) in schema.attributes.items() if required)),
        least_inputs=schema.inputs_min,
        least_outputs=schema.outputs_min,
    )


def _wrap(model: ModelProto, refused_types: Sequence[str]) -> ModelProto:
    """Return the model with inputs and outputs as float, and casts, where ONNX Runtime Web refuses their types."""
    numbers = {number for number, element in ELEMENT_TYPES.items() if f"tensor({element.name})" in refused_types}
    graph, (node,) = model.graph, model.graph.node
    before, after = [], []
    for value in (*graph.input, *graph.output):
        number = value.type.tensor_type.elem_type
        if number not in numbers:
            continue
        inner, value.name = value.name, f"{value.name}_float"
        value.type.tensor_type.elem_type = TensorProto.FLOAT
        if inner in node.input:
            before.append(helper.make_node("Cast", [value.name], [inner], to=number))
        else:
            after.append(helper.make_node("Cast", [inner], [value.name], to=TensorProto.FLOAT))
            graph.value_info.append(helper.make_tensor_value_info(inner, number, None))
    kept = type(node)()
    kept.CopyFrom(node)
    del graph.node[:]
    graph.node.extend([*before, kept, *after])
    return model


def _reduce_table(source: TableSource, results: Sequence[ProbeResult]) -> Table:
    """Return the table of ONNX Runtime for a release, without the kernels and types that the results refute."""
    native = harvest.select_releases(operators.load_shipped_table(NATIVE), [source.release])
    implementation = operators.build_implementations(native, {})[source.release]
    by_operator: dict[tuple[str, str], list[ProbeResult]] = {}
    for result in results:
        by_operator.setdefault((result.domain, result.operator), []).append(result)
    rows = harvest.TableBuilder()
    for domain, names in native.operators.items():
        for name, raw in names.items():
            decoded, operator = msgspec.json.decode(raw, type=OperatorRows), implementation.operator(domain, name)
            assert operator is not None
            for schema_row in decoded.schemas:
                types = rows.constraints(_list_types(native, schema_row.constraints))
                rows.add((domain, name), msgspec.structs.replace(schema_row, constraints=types))
            for kernel_row, kernel in zip(decoded.kernels, operator.kernels, strict=True):
                missing = _reduce_kernel(operator, kernel, by_operator.get((domain, name), ()))
                if missing is not None:
                    listed = _list_types(native, kernel_row.constraints)
                    own = {key: [it for it in types if it not in missing[key]] for key, types in listed.items()}
                    rows.add((domain, name), msgspec.structs.replace(kernel_row, constraints=rows.constraints(own)))
    return rows.table(ENGINE, DESCRIPTION.platform, (source,))


def _list_types(table: Table, constraints: Sequence[tuple[str, int]]) -> dict[str, list[str]]:
    return {name: [table.types[index] for index in table.sets[number]] for name, number in constraints}


def _reduce_kernel(
    operator: Operator, kernel: Kernel, results: Sequence[ProbeResult]
) -> dict[str, frozenset[str]] | None:
    """Return the types that a kernel of ONNX Runtime lacks in the web build, by constraint; None if it is missing.

    Raises:
        SystemExit: no set of types explains which models load.
    """
    loading: list[dict[str, str]] = []
    refused: list[dict[str, str]] = []
    for result in results:
        schema = operator.schema(result.version)
        if schema is None or not kernel.start <= schema.since <= (kernel.end or kernel.start):
            continue
        types = {key: find_constrained_type(schema, key, result.inputs, result.outputs) for key in kernel.constraints}
        if all(name in kernel.constraints[key] for key, name in types.items() if name):
            (loading if result.loads else refused).append({key: name for key, name in types.items() if name})
    if refused and not loading:
        return None
    missing: dict[str, frozenset[str]] = {}
    for key in kernel.constraints:
        lost = {types[key] for types in refused if key in types} - {types[key] for types in loading if key in types}
        missing[key] = frozenset(lost)
    unexplained = [types for types in refused if not any(name in missing[key] for key, name in types.items())]
    if unexplained:
        raise SystemExit(f"{operator.name}: models with these types are refused for another reason: {unexplained}")
    return missing
