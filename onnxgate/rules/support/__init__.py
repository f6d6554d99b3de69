"""Rules of the support stage, one file each."""
