"""Find models that tract may refuse although it accepts each of their nodes alone.

tract loads a model only if it can determine the sizes of all values, as numbers or as expressions of named sizes. Its
table describes single nodes. Whether tract can simplify and compare such expressions depends on the whole model.
Source: 265 models of published packages and of exporters whose nodes tract 0.23.9 accepts alone. It loads 71 of the 74
models with a prediction, and 102 of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxgate.core.findings import is_release_within
from onnxgate.support.matching.operations import TypedModel
from onnxgate.support.operators import Implementation

if TYPE_CHECKING:
    from onnx import TensorShapeProto

ENGINE = "tract"
CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
COUNTING_OPERATORS = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose output sizes depend on values."""
SHAPE_OPERATORS = frozenset({"ConstantOfShape", "Expand", "Range", "Resize", "Shape", "Size", "Tile", "Upsample"})
"""Operators that compute with sizes, or whose output sizes are inputs or multiples of other sizes."""
_UNNAMED = ("", "?")
_WITH_TYPED_RANGE = ("0.21.9", "0.22.4")
"""First and last release that refuse Range if its inputs mix sizes, which have a type of their own, with constants.

Source: 118 static models of the backend tests that contain Range, loaded on 0.22.4; 12 models on 0.21.8, eight releases
from 0.21.9 to 0.22.4, and five from 0.23.0 to 0.23.9. 0.23.0 to 0.23.8 refuse to mix sizes with inputs of the model.
"""
_CONTROL_FLOW_REFUSED = "tract refuses many models with control flow"
_DERIVED_SIZES_REFUSED = "tract refuses many models whose sizes it must derive from others"
_MIXED_INPUTS = "inputs that mix sizes and other integers"


def find_unknown_reason(model: TypedModel, implementation: Implementation) -> str:
    """Return why a release may refuse a model although it accepts each node alone; "" if this is unlikely."""
    if implementation.engine != ENGINE:
        return ""
    shapes = dict(_iterate_input_shapes(model))
    for name, shape in shapes.items():
        if any(not _is_number(dim) and dim.dim_param in _UNNAMED for dim in shape.dim):
            return f"input `{name}` has a size with neither a value nor a name, which tract usually refuses"
    operators = {node.operation.name for node in model.kinds} - {"Constant"}
    if len([node for node in model.nodes if node.operation.name != "Constant"]) == 1:
        return ""  # the table describes single nodes
    if used := operators & CONTROL_FLOW:
        return f"the model contains `{min(used)}`, and {_CONTROL_FLOW_REFUSED}"
    sizes = [{dim.dim_param for dim in shape.dim if not _is_number(dim)} for shape in shapes.values()]
    if used := operators & (COUNTING_OPERATORS | (SHAPE_OPERATORS if any(sizes) else frozenset())):
        return f"sizes depend on `{min(used)}`, and {_DERIVED_SIZES_REFUSED}"
    if any(one - other and other - one for one in sizes for other in sizes):
        return "the names of sizes differ between inputs, which tract refuses if such sizes must be equal"
    if "Range" in operators and list_refused_uses("Range", implementation.release):
        first, last = _WITH_TYPED_RANGE
        return f"the model contains `Range`, which tract {first}–{last} refuses with {_MIXED_INPUTS}"
    return ""


def describe_refused_models(name: str) -> str:
    """Return which models with an operator tract often refuses although it accepts each node; "" if there are none."""
    if name in CONTROL_FLOW:
        return f"{_CONTROL_FLOW_REFUSED}, so they have no prediction"
    if name in COUNTING_OPERATORS:
        return f"{_DERIVED_SIZES_REFUSED}, so they have no prediction"
    if name in SHAPE_OPERATORS:
        return f"with inputs of variable size, {_DERIVED_SIZES_REFUSED}, so they have no prediction"
    return ""


def list_refused_uses(name: str, release: str) -> tuple[str, ...]:
    """Return the uses of an operator that a release refuses although its table does not show it."""
    is_refused = name == "Range" and is_release_within(release, *_WITH_TYPED_RANGE)
    return (f"with {_MIXED_INPUTS}",) if is_refused else ()


def _iterate_input_shapes(model: TypedModel) -> Iterator[tuple[str, TensorShapeProto]]:
    """Yield the name and the shape of each input tensor; tables of nodes cover inputs without a shape."""
    for value in model.interface if model.nodes else ():
        value_type = model.nodes[-1].type_of(value.name) if value.kind == "input" else None
        if value_type is not None and value_type.tensor_type.HasField("shape"):
            yield value.name, value_type.tensor_type.shape


def _is_number(dim: TensorShapeProto.Dimension) -> bool:
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)
