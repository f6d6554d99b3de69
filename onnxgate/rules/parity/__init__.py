"""Rules of the parity stage; each file defines one rule."""
