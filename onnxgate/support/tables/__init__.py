"""Tables of limits, operator schemas and kernels of each ONNX Runtime release."""
