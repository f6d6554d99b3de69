"""Rules of the support stage; each file defines one rule."""
