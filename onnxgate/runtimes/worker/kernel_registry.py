"""Kernels and operator schemas that a build of ONNX Runtime registers."""

from __future__ import annotations

import json
import platform
import re
from typing import Any, Dict, Iterable, List

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

REGISTRY_FUNCTIONS = ("get_all_opkernel_def", "get_all_operator_schema")
"""Source: present in all wheels since 1.16.0, missing from earlier wheels."""


def harvest(path: str) -> Dict[str, Any]:
    """Write the registry to a file, and return the release and commit of the build."""
    registry = all(hasattr(state, name) for name in REGISTRY_FUNCTIONS)
    info = ort.get_build_info() if hasattr(ort, "get_build_info") else ""
    commit = re.search(r"git-commit-id=([0-9a-f]+)", info)  # Source: missing from wheels before 1.17.0
    build = {"registry": registry, "release": ort.__version__, "commit": commit.group(1) if commit else ""}
    content = {
        **build,
        "platform": "%s %s" % (platform.system().lower(), platform.machine()),
        "kernels": _sort_rows(map(_kernel_row, state.get_all_opkernel_def())) if registry else [],
        "schemas": _sort_rows(map(_schema_row, state.get_all_operator_schema())) if registry else [],
    }
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        json.dump(content, file, sort_keys=True, separators=(",", ":"))
    return {"kind": "harvest", **build}


def _sort_rows(rows: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the rows in an order that does not depend on the build."""
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _kernel_row(kernel: Any) -> Dict[str, Any]:
    return {
        "domain": kernel.domain,
        "name": kernel.op_name,
        "versions": list(kernel.version_range),
        "provider": kernel.provider,
        "constraints": {name: sorted(types) for name, types in kernel.type_constraints.items()},
    }


def _schema_row(schema: Any) -> Dict[str, Any]:
    return {
        "domain": schema.domain,
        "name": schema.name,
        "since": schema.since_version,
        "deprecated": schema.deprecated,
        "experimental": _enum_name(schema.support_level) == "EXPERIMENTAL",
        "inputs": [_parameter_row(parameter) for parameter in schema.inputs],
        "outputs": [_parameter_row(parameter) for parameter in schema.outputs],
        "constraints": {rule.type_param_str: sorted(rule.allowed_type_strs) for rule in schema.type_constraints},
        "attributes": {
            name: [_enum_name(attribute.type), attribute.required] for name, attribute in schema.attributes.items()
        },
        "inputs_range": [schema.min_input, schema.max_input],
        "outputs_range": [schema.min_output, schema.max_output],
    }


def _parameter_row(formal: Any) -> List[Any]:
    return [formal.name, formal.typeStr, _enum_name(formal.option), formal.isHomogeneous]


def _enum_name(member: Any) -> str:
    """Return the name of an enum member, such as `Single` for `FormalParameterOption.Single`."""
    return str(member).rpartition(".")[2]
