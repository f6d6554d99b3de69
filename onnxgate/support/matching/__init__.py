"""Infer the types in a model, and compare its operations with the kernels of an ONNX Runtime release."""
