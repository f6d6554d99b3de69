"""Rules of the export stage; each file defines one rule."""
