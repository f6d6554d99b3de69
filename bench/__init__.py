"""What onnxgate costs, measured side by side with peers in one run: `python -m bench`."""
