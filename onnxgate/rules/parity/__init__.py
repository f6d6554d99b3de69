"""Rules of the parity stage, one file each."""
