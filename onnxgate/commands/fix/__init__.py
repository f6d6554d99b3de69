"""Repair of model files: fixes propose changes, which are verified before a file is written."""
