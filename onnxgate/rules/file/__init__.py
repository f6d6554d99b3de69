"""Rules of the file stage, one file each."""
