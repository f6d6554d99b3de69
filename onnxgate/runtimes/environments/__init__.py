"""Create, check and cache the environments of locked runtimes, and find interpreters on this machine."""
