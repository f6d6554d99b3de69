"""`onnxgate runtimes`: the contents of the cache."""
