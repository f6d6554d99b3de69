"""Rules of the file stage; each file defines one rule."""
