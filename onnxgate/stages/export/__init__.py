"""Export stage: fresh exports compared with committed files."""
