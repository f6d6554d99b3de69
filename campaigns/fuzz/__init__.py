"""Mutations of small valid models, read by every reader of models."""
