"""Readers of model files: wire format, structure, facts, external data and tensors."""
