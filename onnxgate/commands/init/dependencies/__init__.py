"""Read which ONNX Runtime packages the dependency files of a repository declare."""
