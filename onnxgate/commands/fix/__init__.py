"""Repair of model files: fixes propose changes, which are verified before the file is written."""
