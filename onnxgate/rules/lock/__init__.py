"""Rules of the lock stage, one file each."""
