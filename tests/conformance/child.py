"""Runs under the Python of one release: loads models one after another, or says which operator schemas it has.

    python child.py load CORPUS.zip LEVEL FIRST RECORD
    python child.py schemas RECORD

`load` writes one JSON line before and one after each model, so that a crash shows which model it was.
"""

import json
import sys
import zipfile

import onnxruntime

def load(corpus, level, first, record):
    """Load every model from the one at `first` on; "" is a model that loads, else the error text."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    with zipfile.ZipFile(corpus) as models, open(record, "a", encoding="utf-8") as lines:
        for index, name in enumerate(models.namelist()[first:], first):
            say(lines, [index])
            say(lines, [index, attempt(models.read(name), options)])


def attempt(model, options):
    """The error text of one model, "" where it loads."""
    try:
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001
        return str(error) or type(error).__name__
    return ""


def say(lines, record):
    """One line, at once."""
    lines.write(json.dumps(record) + "\n")
    lines.flush()


def schemas(record):
    """Every operator schema that the release lists."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = [described(schema) for schema in state.get_all_operator_schema()]
    with open(record, "w", encoding="utf-8") as file:
        json.dump(found, file, sort_keys=True)


def described(schema):
    """One schema as JSON."""
    return {
        "domain": schema.domain or "ai.onnx",
        "name": schema.name,
        "since": schema.since_version,
        "deprecated": schema.deprecated,
        "inputs": [formal(each) for each in schema.inputs],
        "outputs": [formal(each) for each in schema.outputs],
        "constraints": {each.type_param_str: sorted(each.allowed_type_strs) for each in schema.type_constraints},
        "attributes": {name: str(each.type).split(".")[-1] for name, each in schema.attributes.items()},
        "required": sorted(name for name, each in schema.attributes.items() if each.required),
        "least_inputs": schema.min_input,
        "least_outputs": schema.min_output,
    }


def formal(parameter):
    """One formal parameter as JSON."""
    option = str(parameter.option).split(".")[-1]
    return {"name": parameter.name, "type": parameter.typeStr, "option": option}


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        schemas(sys.argv[2])
