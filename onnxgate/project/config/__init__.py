"""`onnxgate.toml`: its types, and finding and loading it."""
