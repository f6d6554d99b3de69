"""What error texts mean: of ONNX Runtime and other engines, of exporters, of onnx, pip, uv, numpy and protobuf.

A text is classified by what it says alone: classes of exceptions and line numbers change with releases.
"""
