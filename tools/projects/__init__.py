"""Sources of the example projects in `fixtures/projects`. Needs onnx, torch and numpy."""
