"""Differences between two models, and the text representation for git diffs."""
