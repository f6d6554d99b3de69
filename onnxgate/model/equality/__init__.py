"""Comparison of models, and matching of their nodes and weights."""
