"""Stages of a check: each collects the evidence that its rules read."""
