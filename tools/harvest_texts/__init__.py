"""Harvests error texts: each failure class is really provoked, under a real environment of one release."""
