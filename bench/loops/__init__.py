"""Loops over models for what has none; a line when a model is done. Run by path, in any environment."""
