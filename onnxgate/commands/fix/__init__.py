"""Repair of model files. Fixes propose changes, which are verified before a file is written."""
