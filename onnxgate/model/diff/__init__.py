"""Differences between two models, and the text representation of a model for git diffs."""
