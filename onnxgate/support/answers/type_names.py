"""Names of types as people write and read them: `half` or `float16` for `tensor(float16)`."""

from __future__ import annotations

import re

from onnxgate.core.errors import UsageError
from onnxgate.core.text import suggest_spelling
from onnxgate.model.facts import ELEMENT_TYPES

TYPE_ALIASES = {
    "float32": "float",
    "fp32": "float",
    "float64": "double",
    "fp64": "double",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "str": "string",
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
}
"""Names of element types in other libraries, and the names in ONNX Runtime."""
_TENSOR = re.compile(r"(?<![a-z_])tensor\(([a-z0-9]+)\)")


def shorten_type(value_type: str) -> str:
    """Return a type without `tensor(…)` around element types, such as `seq(float16)`."""
    return _TENSOR.sub(r"\1", value_type)


def parse_type_name(name: str) -> str:
    """Return a type as in schemas, such as `tensor(float16)` for `half`.

    Raises:
        UsageError: the name contains an unknown element type.
    """
    text = name.strip()
    kind, _, inner = text.removesuffix(")").partition("(")
    if not text.endswith(")") or kind not in ("seq", "optional", "map", "sparse_tensor"):
        return f"tensor({_parse_element(text)})"
    if kind == "map":
        key, _, value = inner.partition(",")
        return f"map({_parse_element(key)},{parse_type_name(value)})"
    return f"{kind}({_parse_element(inner) if kind == 'sparse_tensor' else parse_type_name(inner)})"


def _parse_element(name: str) -> str:
    names = [element.name for element in ELEMENT_TYPES.values()]
    text = name.strip()
    element = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor(") else text
    element = TYPE_ALIASES.get(element.lower(), element.lower())
    if element not in names:
        raise UsageError(
            f"unknown type `{text}`{suggest_spelling(element, (*names, *TYPE_ALIASES))}",
            hint=f"types: {', '.join(names)}",
        )
    return element
