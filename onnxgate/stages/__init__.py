"""Stages of a check. Each stage collects the evidence that its rules read."""
