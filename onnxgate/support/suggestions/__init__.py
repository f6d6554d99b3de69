"""Suggestions of changes that make a model supported by the required releases."""
