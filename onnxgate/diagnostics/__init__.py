"""Causes and fixes of known error texts of ONNX Runtime, other engines, exporters, onnx, pip, uv, NumPy and protobuf.

Errors are recognized only by their wording, because exception classes and line numbers change between releases.
"""
