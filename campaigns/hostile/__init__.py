"""Hostile text in every output format, and invalid input for every reader except those of models."""
