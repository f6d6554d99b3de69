"""ONNX models without runtimes: reading, checking, comparison, differences and extracted parts."""
