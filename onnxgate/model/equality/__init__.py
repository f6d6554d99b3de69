"""Comparison of graphs and matching of their nodes and weights."""
