"""Harvesting: probes and dumps of a build, and the support tables made from them."""
