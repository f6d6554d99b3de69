"""Valid arguments of elementwise operators, activation functions and casts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harvest.probing.catalogue.entries import USUAL_SHAPES, Entry, Shape

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "Identity",
    "IsNaN",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "NonZero",
]

_BINARY = [
    "Add",
    "And",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Xor",
    "SwiGLU",
    "StringConcat",
]


_PAIRS: tuple[tuple[Shape, Shape], ...] = (((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3,), ()), ((), ()))


def _unary(attributes: Mapping[str, object] | None = None, **choices: Sequence[object]) -> Entry:
    return Entry(tuple({"0": shape} for shape in USUAL_SHAPES), attributes or {}, choices)


ELEMENTWISE: dict[str, Entry] = {
    **{name: _unary() for name in _UNARY},
    **{name: Entry(tuple({"0": left, "1": right} for left, right in _PAIRS)) for name in _BINARY},
    **{
        name: Entry(tuple({"0": left, "0b": right} for left, right in _PAIRS)) for name in ["Max", "Mean", "Min", "Sum"]
    },
    "Elu": _unary(alpha=(0.5,)),
    "Celu": _unary(alpha=(0.5,)),
    "Selu": _unary(alpha=(0.5,), gamma=(2.0,)),
    "Gelu": _unary(approximate=("tanh",)),
    "LeakyRelu": _unary(alpha=(0.5,)),
    "HardSigmoid": _unary(alpha=(0.5,), beta=(0.1,)),
    "ThresholdedRelu": _unary(alpha=(0.5,)),
    "Shrink": _unary(bias=(0.5,), lambd=(1.0,)),
    "Swish": _unary(alpha=(0.5,)),
    "IsInf": _unary(detect_negative=(0,), detect_positive=(0,)),
    "Mod": Entry(
        (
            *({"0": left, "1": right} for left, right in _PAIRS),
            *(
                {"0": left, "1": right, "fmod": fmod, "T": f"tensor({element})"}
                for element in ("float", "double", "float16", "bfloat16")
                for fmod in (0, None)
                for left, right in _PAIRS
            ),
        ),
        {"fmod": 1},
        {"fmod": (0, None)},
        {},
        {"T": "tensor(int64)"},
    ),
    "BitShift": Entry(({"X": (2, 3), "Y": (2, 3)},), {"direction": "LEFT"}, {"direction": ("RIGHT",)}),
    "BitCast": Entry(({"0": (2, 3)},), {}),
    "Cast": Entry(({"0": (2, 3)}, {"0": ()}), {}, {"saturate": (0,)}),
    "CastLike": Entry(({"0": (2, 3), "1": (1,)},), {}, {"saturate": (0,)}),
    "Clip": Entry(tuple({"0": s} for s in USUAL_SHAPES), {}, {}, {"min": 0.0, "max": 6.0}),
    "PRelu": Entry(
        ({"X": (1, 4, 8, 8), "slope": (4, 1, 1)}, {"X": (2, 3), "slope": (3,)}, {"X": (2, 3, 4), "slope": (4,)})
    ),
    "Where": Entry(({"condition": (2, 3), "X": (2, 3), "Y": (2, 3)}, {"condition": (), "X": (2, 3), "Y": (3,)})),
}
