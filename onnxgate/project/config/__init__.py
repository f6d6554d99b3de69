"""Find, load and validate `onnxgate.toml`."""
