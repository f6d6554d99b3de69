"""Lock stage: models compared with the lock, and the lock with the config."""
