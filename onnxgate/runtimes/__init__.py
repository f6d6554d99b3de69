"""Locked environments, the host that limits and restarts workers, and the jobs that they do."""
