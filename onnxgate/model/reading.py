"""Facts of a model, read from its file; hashes are made in one pass with little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.model.external import read_and_unread
from onnxgate.model.facts import Dim, ModelFacts, ValueInfo
from onnxgate.model.hashing import sha256_of
from onnxgate.model.structure import nodes, read_lightly, read_structure
from onnxgate.model.types import type_name

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, ValueInfoProto

DEFAULT_DOMAIN = "ai.onnx"
FIRST_IR_WITH_OPTIONAL_INPUTS = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """A model's facts, and its structure without large weights."""

    facts: ModelFacts
    proto: ModelProto


def read(path: Path, relative: str, *, lightly: bool = False) -> Reading:
    """Read a model once. `relative` is how it is called in reports: `/`, relative to the config's folder.

    `lightly` is for those who only judge it; see `read_lightly`.

    Raises:
        UnreadableModel: the file is no model.
    """
    proto = read_lightly(path) if lightly else read_structure(path)
    return Reading(facts_of(proto, path, relative), proto)


def read_facts(path: Path, relative: str) -> ModelFacts:
    """The facts of a model; see `read`."""
    return read(path, relative).facts


def facts_of(proto: ModelProto, path: Path, relative: str) -> ModelFacts:
    """The facts of a structure that was read from `path`."""
    external, unread = read_and_unread(proto, path)
    return ModelFacts(
        path=relative,
        sha256=sha256_of(path),
        size_bytes=path.stat().st_size,
        ir_version=proto.ir_version,
        opsets=opsets(proto),
        producer=_producer(proto),
        inputs=values(inputs(proto.graph)),
        outputs=values(proto.graph.output),
        operators=operators(proto),
        metadata_keys=tuple(sorted(entry.key for entry in proto.metadata_props)),
        external=external,
        function_opsets=_newest(imported for function in proto.functions for imported in function.opset_import),
        optional_inputs=values(optional_inputs(proto)),
        functions=tuple(sorted({_qualified(function.domain, function.name) for function in proto.functions})),
        unread=unread,
    )


def canonical_domain(domain: str) -> str:
    """The default domain has two spellings; reports have one."""
    return domain or DEFAULT_DOMAIN


def opsets(proto: ModelProto) -> dict[str, int]:
    """Domain -> version, sorted; of a domain that is imported twice, the newer."""
    return _newest(proto.opset_import)


def _newest(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    found: dict[str, int] = {}
    for imported in imports:
        domain = canonical_domain(imported.domain)
        found[domain] = max(imported.version, found.get(domain, imported.version))
    return dict(sorted(found.items()))


def _producer(proto: ModelProto) -> str:
    version = proto.producer_version.partition("+")[0]
    return f"{proto.producer_name} {version}".strip()


def inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """The graph's inputs that no initializer gives a value to."""
    given = _given(graph)
    return [value for value in graph.input if value.name not in given]


def optional_inputs(proto: ModelProto) -> list[ValueInfoProto]:
    """The graph's inputs that need not be fed, and may be.

    Source: ONNX Runtime 1.23 feeds them from IR version 4 on; below, such an input is a constant.
    """
    given = _given(proto.graph) if proto.ir_version >= FIRST_IR_WITH_OPTIONAL_INPUTS else set()
    return [value for value in proto.graph.input if value.name in given]


def _given(graph: GraphProto) -> set[str]:
    given = {tensor.name for tensor in graph.initializer}
    given.update(sparse.values.name for sparse in graph.sparse_initializer)
    return given


def values(protos: Sequence[ValueInfoProto]) -> tuple[ValueInfo, ...]:
    """Name, type and shape of graph inputs or outputs."""
    return tuple(ValueInfo(proto.name, type_name(proto.type), _shape(proto)) for proto in protos)


def _shape(value: ValueInfoProto) -> tuple[Dim, ...] | None:
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = getattr(value.type, kind)
    return tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None


def _dim(dim: TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) or "?"


def operators(proto: ModelProto) -> dict[str, int]:
    """Operator -> how many nodes, sorted; subgraphs and local functions included."""
    return dict(sorted(Counter(map(operator_name, nodes(proto))).items()))


def operator_name(node: NodeProto) -> str:
    """`Conv`, or with its domain where that is not the default one."""
    return _qualified(node.domain, node.op_type)


def _qualified(domain: str, name: str) -> str:
    return name if domain in ("", DEFAULT_DOMAIN) else f"{domain}.{name}"
