"""Compare predictions for thousands of models with real loads on each release."""
