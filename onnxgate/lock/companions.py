"""What engines are installed with: what their metadata ask for, and no more than inference needs."""

from __future__ import annotations

from onnxgate.lock.types import LockedRuntime

NEEDED = {
    "onnxruntime": ("numpy",),
    "openvino": ("numpy",),
    "tract": ("numpy",),
    "onnx": ("numpy", "protobuf"),
    "opencv-python-headless": ("numpy",),
    "onnxruntime-web": ("onnxruntime-common",),
}
"""What an engine is never run without."""
WHERE_ASKED = {"onnx": ("ml-dtypes", "typing-extensions")}
"""What only some releases of an engine depend on. Source: onnx 1.23.2 imports both, 1.18.0 has no ml_dtypes.

All else stays out: openvino 2026.4.1 imports and runs without its `openvino-telemetry`, and under Node onnxruntime-web
1.16.3 to 1.30.0 need nothing of what their package.json names but onnxruntime-common.
"""


def companions_of(engine: str) -> tuple[str, ...]:
    """The packages that may be pinned beside an engine."""
    return (*NEEDED.get(engine, ()), *WHERE_ASKED.get(engine, ()))


def has_companions(runtime: LockedRuntime) -> bool:
    """Whether all that the engine is never run without is pinned."""
    pinned = {pin.partition("==")[0] for pin in runtime.packages}
    return pinned.issuperset(NEEDED.get(runtime.engine, ()))
