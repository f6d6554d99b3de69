"""Rules of the lock stage; each file defines one rule."""
