"""One module per framework; each runs under the toolchain's interpreter and knows no other part of onnxgate."""
