"""A check divided among jobs: plan, shard reports, and their merge."""
