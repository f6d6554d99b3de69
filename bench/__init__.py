"""Benchmark of onnxgate, compared with other tools and with lower bounds in the same run: `python -m bench`."""
