"""Harvest error texts: provoke each failure in a real environment of one release."""
