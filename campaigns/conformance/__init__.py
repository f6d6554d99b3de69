"""Compare predictions for thousands of models with the results of loading them on each release."""
