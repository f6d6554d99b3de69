"""Restrictions of ONNX Runtime that no schema contains, and changes by its optimizer before it selects kernels."""
