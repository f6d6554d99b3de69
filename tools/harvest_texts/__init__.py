"""Harvest error texts: provoke each failure in an environment with a real release."""
