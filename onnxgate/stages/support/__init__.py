"""Support stage: predictions from the support data of each required runtime."""
