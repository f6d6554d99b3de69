"""The same models at another git revision."""
