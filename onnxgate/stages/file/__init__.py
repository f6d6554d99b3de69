"""File stage: whether a file is a valid and complete model."""
