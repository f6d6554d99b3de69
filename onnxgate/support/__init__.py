"""Support tables of runtime releases, prediction of loads, and suggestions."""
