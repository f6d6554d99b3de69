"""Run git commands, read models at a git revision, and choose the baseline revision."""
