"""Conversion of hits into the report: rules, ignores, verdict, reproduction commands."""
