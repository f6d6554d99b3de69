"""Locked environments of runtimes, the pool of worker processes, and the worker itself."""
