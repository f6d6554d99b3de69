"""Mutate small valid models, and read them with every model reader."""
