"""Values and primitives that import nothing else of onnxgate: findings, report, jobs, errors, files, processes."""
