"""Modules of `tools/harvest_support.py`."""
