"""Environments of locked runtimes, the pool of worker processes, and the code of the worker."""
