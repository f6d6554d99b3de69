"""Sharded checks: the plan, shard reports and their merge."""
