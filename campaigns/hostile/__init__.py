"""Test hostile text in every output format, and invalid input for every reader except the model readers."""
