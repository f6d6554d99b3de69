"""`onnxgate lock`: measured tolerances, and the preview of an upgrade."""
