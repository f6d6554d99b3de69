"""Runs with the Python of one release: load models one after another, or list the operator schemas of the release.

    python child.py load CORPUS.zip LEVEL FIRST RECORD
    python child.py schemas RECORD

`load` writes one JSON line before and one after each model, so that the model is known after a crash.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any, TextIO

import onnxruntime


def load(corpus: str, level: str, first: int, record: Path) -> None:
    """Load all models from index `first` on, and record the error text of each; "" if it loads."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    with zipfile.ZipFile(corpus) as models, record.open("a", encoding="utf-8") as lines:
        for index, name in enumerate(models.namelist()[first:], first):
            write_record(lines, index)
            write_record(lines, index, attempt(models.read(name), options))


def attempt(model: bytes, options: Any) -> str:
    """Return the error text of a model; "" if it loads."""
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001
        return str(error) or type(error).__name__
    return ""


def write_record(lines: TextIO, *record: int | str) -> None:
    """Write one line immediately."""
    lines.write(json.dumps(record) + "\n")
    lines.flush()


def schemas(record: Path) -> None:
    """Write every operator schema of the release."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    described_schemas = [described(schema) for schema in state.get_all_operator_schema()]
    record.write_text(json.dumps(described_schemas, sort_keys=True), encoding="utf-8")


def described(schema: Any) -> dict[str, object]:
    """Return a schema as JSON."""
    return {
        "domain": schema.domain or "ai.onnx",
        "name": schema.name,
        "since": schema.since_version,
        "deprecated": schema.deprecated,
        "inputs": [formal(value) for value in schema.inputs],
        "outputs": [formal(output) for output in schema.outputs],
        "constraints": {
            type_constraint.type_param_str: sorted(type_constraint.allowed_type_strs)
            for type_constraint in schema.type_constraints
        },
        "attributes": {name: last_word(each.type) for name, each in schema.attributes.items()},
        "required": sorted(name for name, each in schema.attributes.items() if each.required),
        "least_inputs": schema.min_input,
        "least_outputs": schema.min_output,
    }


def formal(parameter: Any) -> dict[str, str]:
    """Return a formal parameter as JSON."""
    return {"name": parameter.name, "type": parameter.typeStr, "option": last_word(parameter.option)}


def last_word(value: object) -> str:
    """Return the name of an enum value: `INT` for `AttrType.INT`."""
    return str(value).rpartition(".")[2]


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
    else:
        schemas(Path(sys.argv[2]))
