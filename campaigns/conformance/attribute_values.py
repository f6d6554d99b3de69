"""Attributes of a fuzzed node: all that its schema requires, with values that its operator accepts."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto, helper

from campaigns.conformance.schemas import Schema
from campaigns.conformance.type_names import element, inner, tensor, type_proto

OF_RESULT = ("to", "dtype", "output_dtype", "output_datatype")
"""Attributes that set the element type of an output."""
BY_KIND: Mapping[str, object] = {
    "INT": 1,
    "FLOAT": 1.0,
    "STRING": "a",
    "INTS": [1, 1],
    "FLOATS": [1.0, 1.0],
    "STRINGS": ["a", "b"],
}
BY_NAME: Mapping[str, object] = {
    "activation": "Relu",
    "axes": [0],
    "axis": 0,
    "block_size": 32,
    "border": [1, 1, 1, 1],
    "direction": "LEFT",
    "equation": "...->...",
    "hidden_size": 2,
    "max_ngram_size": 2,
    "mode": "TF",
    "num_groups": 1,
    "pads": [0, 0, 0, 0],
    "paddings": [0, 0, 0, 0],
    "policy_mode": "qsa",
    "scales": [1.0, 1.0, 1.0, 1.0],
}
RECURRENT: Mapping[str, object] = {"hidden_size": 2}
SUPPORT_VECTORS: Mapping[str, object] = {
    "coefficients": [1.0],
    "kernel_params": [1.0, 0.0, 1.0],
    "rho": [0.0],
    "support_vectors": [1.0],
}
# A tree whose root has two leaves.
NODES: Mapping[str, object] = {
    "nodes_falsenodeids": [2, 0, 0],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_nodeids": [0, 1, 2],
    "nodes_treeids": [0, 0, 0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
}
# Attributes that kernels require although the schema does not.
BY_OPERATOR: Mapping[str, Mapping[str, object]] = {
    "AttnLSTM": RECURRENT,
    "CategoryMapper": {"cats_int64s": [1, 2], "cats_strings": ["a", "b"]},
    "DynamicQuantizeLSTM": RECURRENT,
    "FeatureVectorizer": {"inputdimensions": [1, 1]},
    "FusedGemm": {"activation": "Relu"},
    "GRU": RECURRENT,
    "ImageScaler": {"bias": [1.0], "scale": 1.0},
    "LSTM": RECURRENT,
    "LinearClassifier": {"coefficients": [1.0, 1.0], "intercepts": [1.0, 1.0]},
    "LinearRegressor": {"coefficients": [1.0]},
    "MaxpoolWithMask": {"kernel_shape": [1, 1]},
    "ParametricSoftplus": {"alpha": 1.0, "beta": 1.0},
    "RNN": RECURRENT,
    "RegexFullMatch": {"pattern": "a"},
    "Reshape": {"shape": [-1]},
    "Resize": {"scales": [1.0, 1.0, 1.0, 1.0]},
    "SVMClassifier": {
        **SUPPORT_VECTORS,
        "coefficients": [1.0, 1.0],
        "support_vectors": [1.0, 2.0],
        "vectors_per_class": [1, 1],
    },
    "SVMRegressor": {**SUPPORT_VECTORS, "n_supports": 1},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0},
    "Scaler": {"offset": [0.0], "scale": [1.0]},
    "TfIdfVectorizer": {"ngram_counts": [0], "ngram_indexes": [0]},
    "Tokenizer": {"separators": ["a"]},
    "TreeEnsemble": {
        **{name: [0] for name in ("tree_roots", "nodes_featureids", "nodes_truenodeids", "leaf_targetids")},
        "nodes_falseleafs": [1],
        "nodes_falsenodeids": [0],
        "nodes_trueleafs": [1],
        "n_targets": 1,
    },
    "TreeEnsembleClassifier": {
        **NODES,
        "class_ids": [0, 1],
        "class_nodeids": [1, 2],
        "class_treeids": [0, 0],
        "class_weights": [1.0, 1.0],
    },
    "TreeEnsembleRegressor": {
        **NODES,
        "n_targets": 1,
        "target_ids": [0, 0],
        "target_nodeids": [1, 2],
        "target_treeids": [0, 0],
        "target_weights": [1.0, 1.0],
    },
}
LISTS: Mapping[str, tuple[str, object]] = {
    "tensor(float)": ("floats", [1.0, 2.0]),
    "tensor(int64)": ("int64s", [1, 2]),
    "tensor(string)": ("strings", ["a", "b"]),
}


def values(schema: Schema, binding: Mapping[str, str], full: bool) -> dict[str, object]:
    """Return the attributes of a node by name, without graph attributes."""
    of_operator = {**BY_OPERATOR.get(schema.name, {}), **_of_types(schema, binding, full)}
    chosen = {name: _plausible(name, schema.attributes[name]) for name in schema.required if name not in of_operator}
    chosen |= {name: value for name, value in of_operator.items() if name in schema.attributes}
    chosen |= _of_result(schema, binding)
    return {name: value for name, value in sorted(chosen.items()) if value is not None}


def _plausible(name: str, kind: str) -> object:
    if kind == "GRAPH":
        return None
    if kind == "TENSOR":
        return tensor("tensor(float)")
    fits = name in BY_NAME and isinstance(BY_NAME[name], type(BY_KIND[kind]))
    return BY_NAME[name] if fits else BY_KIND[kind]


def _of_result(schema: Schema, binding: Mapping[str, str]) -> dict[str, object]:
    """Return the attribute that sets the type of an output that no input determines."""
    of_inputs = {formal.type for formal in schema.inputs}
    for formal in schema.outputs:
        for name in OF_RESULT:
            if formal.type in binding and formal.type not in of_inputs and name in schema.attributes:
                number = element(binding[formal.type])
                return {name: number if schema.attributes[name] == "INT" else TensorProto.DataType.Name(number)}
    return {}


def _of_types(schema: Schema, binding: Mapping[str, str], full: bool) -> dict[str, object]:
    """Return required attributes that depend on the types of the arguments."""
    types = [*binding.values()] or [""]
    first, last, text = types[0], types[-1], "string" in types[0]
    match schema.name:
        case "Constant" | "ConstantOfShape":
            return {"value": tensor(last)}
        case "Optional":
            return {} if full else {"type": type_proto(inner(last))}
        case "BatchNormalization" if schema.since >= 14:
            return {"training_mode": 1} if full else {}
        case "LabelEncoder":
            return _label_encoder(schema, first, last)
        case "OneHotEncoder":
            return {"cats_strings": ["a"]} if text else {"cats_int64s": [1]}
        case "DictVectorizer":
            return {"string_vocabulary": ["a"]} if first.startswith("map(string") else {"int64_vocabulary": [1]}
        case "Imputer":
            return {"imputed_value_int64s": [1]} if "int" in first else {"imputed_value_floats": [1.0]}
        case "ZipMap":
            return {"classlabels_strings": ["a"]} if text else {"classlabels_int64s": [1]}
        case "TfIdfVectorizer":
            return {"pool_strings": ["a"]} if text else {"pool_int64s": [1]}
        case "CastMap":
            return {"cast_to": {"tensor(float)": "TO_FLOAT", "tensor(int64)": "TO_INT64"}.get(last, "TO_STRING")}
        case "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier":
            return _class_labels(schema, last)
        case "TreeEnsemble":
            return {name: tensor(last) for name in ("leaf_weights", "nodes_splits")} | {"nodes_modes": _modes()}
    return {}


def _modes() -> TensorProto:
    return helper.make_tensor("t", TensorProto.UINT8, [1], [0])


def _class_labels(schema: Schema, type_: str) -> dict[str, object]:
    if "string" in type_:
        return {"classlabels_strings": ["a", "b"]}
    return {name: [0, 1] for name in ("classlabels_ints", "classlabels_int64s") if name in schema.attributes}


def _label_encoder(schema: Schema, keys: str, result: str) -> dict[str, object]:
    if schema.since == 1:
        return {"classes_strings": ["a", "b"]}
    if keys in LISTS and result in LISTS:
        pairs = (("keys", LISTS[keys]), ("values", LISTS[result]))
        return {f"{role}_{suffix}": listed for role, (suffix, listed) in pairs}
    # ONNX Runtime 1.25.0 to 1.26.0 refuses tensors with a single string.
    tensors = {"keys_tensor": tensor(keys, 2), "values_tensor": tensor(result, 2)}
    return tensors if "string" in result else tensors | {"default_tensor": tensor(result)}
