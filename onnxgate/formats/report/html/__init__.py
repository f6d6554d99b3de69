"""The report as one HTML page with its style and script."""
