"""Known error texts of ONNX Runtime, other engines, exporters, onnx, pip, uv, NumPy and protobuf: causes and fixes.

Only the wording of an error is matched, because exception classes and line numbers change between releases.
"""
