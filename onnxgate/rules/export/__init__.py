"""Rules of the export stage, one file each."""
