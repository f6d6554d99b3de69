"""What the example projects below `fixtures/projects` are made from. Runs where onnx, torch and numpy are."""
