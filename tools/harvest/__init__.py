"""The parts of `tools/harvest_support.py`."""
