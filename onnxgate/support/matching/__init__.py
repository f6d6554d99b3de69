"""Type inference of a model, and matching of its operations against a release."""
