"""The fixes, by the part of a model that they change."""
