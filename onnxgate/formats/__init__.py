"""A report as a string, one file per format; every string that came from a model is hostile."""
