"""Hostile text through every format, and hostile input through every reader but those of models."""
