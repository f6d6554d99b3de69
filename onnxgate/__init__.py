"""The compatibility gate for ONNX models."""

__version__ = "0.1.0"
