"""Rules of the gate stage; each file defines one rule."""
