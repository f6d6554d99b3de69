"""`onnxgate.lock`: its types, loading, resolving and writing."""
