"""Adapters of engines. Each is a module with the functions `probe`, `load` and `run`."""
