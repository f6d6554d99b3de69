"""One module per framework; each runs under the toolchain's interpreter and imports nothing else of onnxgate."""
