"""Rules of the gate stage, one file each."""
