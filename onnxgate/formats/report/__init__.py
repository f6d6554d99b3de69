"""Formats of a report, one module each; `RENDERERS` in cli/shared/outputs.py lists them."""
