"""Parity stage of one model: comparisons, and the additional runs that they need."""
