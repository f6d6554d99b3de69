"""Opset versions of an export: lowered to those that all targets support; `ai.onnx.ml` raised to the pinned version."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, Optional

Wire = Dict[str, Any]

_FIELDS = {"ai.onnx": ("opset", "opset_max"), "ai.onnx.ml": ("opset_ml", "opset_ml_max")}
"""Fields of an `Export` job, by domain: the pinned version, and the newest version that all targets support."""


def convert_within_limits(job: Wire, convert: Callable[[Wire], Any], path: Optional[str] = None) -> Any:
    """Return `convert(job)`; repeat it with the targets' newest opsets if the model needs newer ones.

    `convert` returns the model, or writes it to `path`. A pinned version is never replaced.
    """
    import onnx

    made = convert(job)
    model = made if path is None else onnx.load(path, load_external_data=False)
    versions = _model_opsets(model)
    lowered = {
        pinned: job[limit]
        for domain, (pinned, limit) in _FIELDS.items()
        if job.get(pinned) is None and job.get(limit) is not None and versions.get(domain, 0) > job[limit]
    }
    return convert({**job, **lowered}) if lowered else made


def raise_ml_opset(model: Any, wanted: Optional[int]) -> bool:
    """Raise the version of `ai.onnx.ml` to `wanted` if its operators are unchanged. Return whether it changed.

    skl2onnx imports the oldest version that has all operators in use, whatever version it is called with.
    Source: skl2onnx 1.20, `convert_topology`.
    """
    from onnx import defs

    domain = "ai.onnx.ml"
    before = _model_opsets(model).get(domain)
    if wanted is None or before is None or before >= wanted:
        return False
    try:
        for operator in {node.op_type for node in iter_nodes(model) if node.domain == domain}:
            old, new = (defs.get_schema(operator, version, domain) for version in (before, wanted))
            if old.since_version != new.since_version:
                return False
    except defs.SchemaError:  # this onnx does not know the operator or the version
        return False
    for owner in (model, *model.functions):
        for opset in owner.opset_import:
            if opset.domain == domain and opset.version == before:
                opset.version = wanted
    return True


def _model_opsets(model: Any) -> Dict[str, int]:
    return {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}


def iter_nodes(model: Any) -> Iterator[Any]:
    """Yield all nodes, those of subgraphs and functions included."""
    waiting = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                waiting.extend([attribute.g] * attribute.HasField("g") + list(attribute.graphs))
