"""Values and primitives that import no other package of onnxgate: findings, report, jobs, errors, files, processes."""
