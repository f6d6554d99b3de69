"""Error texts of ONNX Runtime and other engines, exporters, onnx, pip, uv, numpy and protobuf: causes and fixes.

A text is classified by its words alone: classes of exceptions and line numbers change with releases.
"""
