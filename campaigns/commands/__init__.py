"""Mutated models through whole commands."""
