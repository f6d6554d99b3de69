"""Caches: results of runs, static results and file digests, and harvested builds."""
