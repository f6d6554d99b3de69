"""Type inference of a model, and matching of its operations with what a release implements."""
