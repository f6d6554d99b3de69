"""Comparison of outputs: criteria, tolerances and metrics."""
