"""Probe an engine: one-node models, their loads, and the conditions on which the engine refuses them."""
