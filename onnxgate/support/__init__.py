"""Support tables of runtime releases, with predictions and suggestions that are based on them."""
