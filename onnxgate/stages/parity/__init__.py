"""Parity stage: outputs compared with the source, other runtimes and float models."""
