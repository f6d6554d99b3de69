"""Loops for tools that take one model at a time; they print a line per model. Run by path, in any environment."""
