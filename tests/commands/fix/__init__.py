"""Repairs: each fix by itself, the proof, and how a file is replaced."""
