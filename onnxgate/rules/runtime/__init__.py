"""Rules of the runtime stage; each file defines one rule."""
