"""Operations on ONNX models without a runtime: reading, validation, comparison, diffs and extraction of submodels."""
