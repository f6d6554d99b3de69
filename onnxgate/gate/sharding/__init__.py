"""Checks that are divided among jobs: plan, shard reports and merge."""
