"""Hostile models, made from small sound ones, put through everything that reads a model."""
