"""Backend models are distinguished by content, not by producer."""

from __future__ import annotations

from onnx import TensorProto, helper

from campaigns.conformance import backend_models


def _relu(producer: str, name: str, opset: int) -> bytes:
    values = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], name, values[:1], values[1:])
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, producer_name=producer, opset_imports=imports, ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def test_same_model_of_another_release_is_a_duplicate() -> None:
    """Models that differ only in producer or graph name are duplicates; the first one is kept."""
    models = {"1.2.2/a": _relu("p", "a", 14), "1.3.0/b": _relu("q", "b", 14), "1.3.0/c": _relu("q", "b", 15)}

    assert ["1.2.2/a", "1.3.0/c"] == list(backend_models.distinct(models.items()))


def test_the_installed_onnx_generates_models_of_each_kind() -> None:
    """The corpus has node tests, simple models and light models."""
    names = [name.split("/")[1] for name, _ in backend_models.generated()]

    assert {"node", "simple", "light", "pytorch-converted", "pytorch-operator"} <= set(names)
    assert len(names) > 1500
