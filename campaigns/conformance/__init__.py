"""Predictions against real loads: what is predicted of thousands of models, and what each release really does."""
