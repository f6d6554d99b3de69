"""Differences between two models, and the text that git compares."""
