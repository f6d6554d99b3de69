"""
The compatibility gate for ONNX models.

PYTEST_DONT_REWRITE: onnxgate contains a plugin, and pytest warns if a module of a plugin is imported before it starts.
"""

__version__ = "0.1.0"
