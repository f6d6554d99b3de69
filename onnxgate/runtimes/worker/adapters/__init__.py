"""Adapters of engines: one module each, with the functions `probe`, `load` and `run`."""
