"""Changes to models since their baseline, as part of the lock stage."""
