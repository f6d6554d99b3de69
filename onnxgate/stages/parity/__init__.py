"""Parity stage: compare outputs with the source, other runtimes and float models."""
